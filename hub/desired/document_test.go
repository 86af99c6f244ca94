package desired

import (
	"fmt"
	"strings"
	"testing"
)

// The examples of RFC 7396, appendix A, that are objects.
func TestMergeIsTheRFCs(t *testing.T) {
	for _, c := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{"e":null}`, `{"a":1}`, `{"a":1,"e":null}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"n":1.50}`, `{"m":12345678901234567890}`, `{"m":12345678901234567890,"n":1.50}`},
	} {
		target, patch := mustParse(t, c[0]), mustParse(t, c[1])
		before, err := canonical(patch)
		if err != nil {
			t.Fatal(err)
		}
		got, err := canonical(merge(target, patch))
		if err != nil || string(got) != c[2] {
			t.Errorf("%s with %s is %s, want %s (%v)", c[0], c[1], got, c[2], err)
		}
		if after, err := canonical(patch); err != nil || string(after) != string(before) {
			t.Errorf("the patch became %s", after)
		}
	}
}

func mustParse(t *testing.T, s string) object {
	t.Helper()
	o, err := parse([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestOnlyObjectsAreDocuments(t *testing.T) {
	deep := strings.Repeat(`{"a":`, MaxDepth+1) + "1" + strings.Repeat("}", MaxDepth+1)
	for doc, want := range map[string]string{
		``: "ends too early", `{"a":`: "ends too early", `[]`: "not a JSON object", `null`: "not a JSON object", `7`: "not a JSON object",
		`{"a":1,"a":2}`: "a is there twice", `{"x":[{"b":1,"b":1}]}`: "x[0].b is there twice", `{"a":1} {}`: "something follows",
		deep: "levels deep", "{\"a\":\"\xff\"}": "UTF-8", `{a:1}`: "invalid", `{"agent":{"logs":{}}}`: "agent.logs is not known: there are lanes, link, log",
		`{"agent":7}`: "agent is not an object", `{"agent":{"lanes":{}}}`: "agent.lanes is not a list", `{"agent":{"log":{"level":4}}}`: "agent.log.level is not a text",
		`{"agent":{"link":{"max_rate":{}}}}`: "agent.link.max_rate is not a text or a number",
	} {
		c := Change{Target: Target{Device: "d"}, Document: []byte(doc)}
		if err := c.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", doc, err, want)
		}
	}
	for _, doc := range []string{
		`{}`, ` {"a":null} `, `{"agent":null,"x":{"":[]}}`, strings.Repeat(`{"a":`, MaxDepth) + "1" + strings.Repeat("}", MaxDepth),
		`{"agent":{"log":{"level":"debug"},"link":{"class":"metered","max_rate":"64KiB","flush":null,"daily_bytes":0,"windows":[]},"lanes":[{"match":"a.>","lane":"urgent"}]}}`,
	} {
		c := Change{Target: Target{Device: "d"}, Document: []byte(doc)}
		if err := c.check(); err != nil {
			t.Errorf("%.60s: %v", doc, err)
		}
	}
}

func TestVersionChangesWithTheDocumentAlone(t *testing.T) {
	of := func(docs ...string) *merged {
		var in []*document
		for i, s := range docs {
			in = append(in, &document{key: "k", rev: uint64(i + 1), data: []byte(s)})
		}
		m, err := mergeAll(in)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	a, b := of(`{"a":1,"b":{"c":[1, 2]}}`), of(`{"b":{"c":3}}`, `{"b":{"c":[1,2]},"a":1}`)
	if a.hash != b.hash || a.version == b.version || !strings.HasPrefix(b.version, "2-") {
		t.Errorf("the same: %s %s", a.version, b.version)
	}
	seen := map[string]bool{}
	for _, m := range []*merged{a, of(), of(`{"a":1}`), of(`{"a":1.0}`), of(`{"a":"1"}`), of(`{"a":1}`, `{"b":null,"c":""}`)} {
		if seen[m.hash] {
			t.Errorf("%s has the hash of another", m.data)
		}
		seen[m.hash] = true
	}
	if rev, hash := split(b.version); rev != 2 || hash != b.hash {
		t.Errorf("split: %d %s", rev, hash)
	}
	for _, s := range []string{"", "x", "-", "9999999999999999999999-a", "a-b"} {
		if rev, hash := split(s); rev != 0 || hash != "" {
			t.Errorf("%q: %d %q", s, rev, hash)
		}
	}
}

func TestKeysTakeEveryLabel(t *testing.T) {
	for _, tg := range []Target{
		{Device: "press-7"}, {Key: "site", Value: "north"}, {Key: "k", Value: ""}, {Key: "a.b *>", Value: "x=y"}, {Key: "größe", Value: strings.Repeat("ü", maxValue/2)},
	} {
		key := tg.key()
		if strings.ContainsAny(key, " *>=") {
			t.Errorf("key %q", key)
		}
		if got, err := parseKey(key); err != nil || got != tg {
			t.Errorf("%q: %+v, %v", key, got, err)
		}
	}
	for _, key := range []string{"", "doc", "doc.device.", "doc.device.a b", "doc.label.k.v", "doc.label.xYQ.vYQ", "doc.label..", "report.d", "doc.label.kYQ.vYR"} {
		if got, err := parseKey(key); err == nil {
			t.Errorf("%q is %+v", key, got)
		}
	}
	for _, s := range []string{"site", "=north", "a\n=b", strings.Repeat("k", maxKey+1) + "=v"} {
		if _, err := ParseLabel(s); err == nil {
			t.Errorf("label %q", s)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":{"b":[1,null,"x"]}}`, `{"a":1,"a":2}`, `[`, `{"<":"\u2028"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := parse(data)
		if err != nil {
			return
		}
		once, err := canonical(o)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parse(once)
		if err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		twice, err := canonical(again)
		if err != nil || string(twice) != string(once) {
			t.Fatalf("%s became %s (%v)", once, twice, err)
		}
		if got := fmt.Sprint(merge(object{}, o)); got == "" {
			t.Fatal("nothing")
		}
	})
}
