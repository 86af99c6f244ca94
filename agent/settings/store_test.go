package settings

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// rig is a store whose agent has two settings: link, and other.
type rig struct {
	t      testing.TB
	cfg    Config
	s      *Store
	now    time.Time
	up     bool
	effect string // what is in effect: "link other"
	log    bytes.Buffer
}

func newRig(t testing.TB) *rig {
	r := &rig{t: t, now: time.Unix(1_800_000_000, 0), up: true}
	r.cfg = Config{
		Dir: t.TempDir(), Parse: r.parse, Up: func() bool { return r.up }, Now: func() time.Time { return r.now },
		Log: slog.New(slog.NewTextHandler(&r.log, nil)),
	}
	r.open()
	return r
}

// open is a start of the agent.
func (r *rig) open() {
	r.effect = "a 1"
	r.s = Open(r.cfg)
}

func (r *rig) parse(member json.RawMessage) (Part, error) {
	in := struct{ Link, Other string }{"a", "1"}
	dec := json.NewDecoder(bytes.NewReader(member))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return Part{}, fmt.Errorf("agent: %w", err)
	}
	return Part{in.Link, func() bool {
		renewed := !strings.HasPrefix(r.effect, in.Link+" ")
		r.effect = in.Link + " " + in.Other
		return renewed && in.Link != "quiet" // a link that changes without a new session
	}}, nil
}

// give is an answer of the hub that brings a document.
func (r *rig) give(version, document string) error {
	return r.s.take(r.asked(), &wire.Desired{Version: version, Document: json.RawMessage(document)})
}

// asked is what a request tells the hub now.
func (r *rig) asked() *wire.DesiredReport {
	return r.s.Exchange(noCommands{}).Ask(0).Desired
}

func (r *rig) pass(d time.Duration) {
	r.now = r.now.Add(d)
	r.s.tick()
}

// state is what the hub is told, and what is in effect.
func (r *rig) state() string {
	p := r.asked()
	return strings.TrimSpace(fmt.Sprintf("%s %s | %s | %s", p.Version, p.State, r.effect, p.Reason))
}

func (r *rig) want(want string) {
	r.t.Helper()
	if got := r.state(); !strings.HasPrefix(got, want) {
		r.t.Errorf("got  %s\nwant %s", got, want)
	}
}

type noCommands struct{}

func (noCommands) Ask(limit int) wire.CommandRequest { return wire.CommandRequest{Room: limit} }
func (noCommands) Take(wire.CommandRequest, *wire.CommandReply) (bool, error) {
	return true, nil
}
func (noCommands) Updates() <-chan struct{} { return nil }

const linkB, linkC, quiet, other = `{"agent":{"link":"b"}}`, `{"agent":{"link":"c"}}`, `{"agent":{"link":"quiet"}}`, `{"agent":{"other":"2"},"app":{"n":1}}`

// script: give VERSION DOCUMENT, session, answer, pass TIME, open, down, up, and
// "= STATE" for what has to come of it.
func (r *rig) script(lines ...string) {
	r.t.Helper()
	var sent *wire.DesiredReport
	for _, line := range lines {
		verb, rest, _ := strings.Cut(line, " ")
		switch verb {
		case "give":
			version, document, _ := strings.Cut(rest, " ")
			if err := r.give(version, document); err != nil {
				r.t.Fatal(err)
			}
		case "session":
			r.s.SessionUp()
		case "ask":
			sent = r.asked()
		case "answer":
			if err := r.s.take(sent, nil); err != nil {
				r.t.Fatal(err)
			}
		case "pass":
			d, err := time.ParseDuration(rest)
			if err != nil {
				r.t.Fatal(err)
			}
			r.pass(d)
		case "open":
			r.open()
		case "down", "up":
			r.up = verb == "up"
		case "=":
			if got := r.state(); !strings.HasPrefix(got, rest) {
				r.t.Errorf("at %q\n got %s\nwant %s", line, got, rest)
			}
		default:
			r.t.Fatalf("unknown: %s", line)
		}
	}
}

func TestScripts(t *testing.T) {
	for name, lines := range map[string][]string{
		"nothing":                         {"= | a 1", "open", "session", "pass 2h", "= | a 1"},
		"applied at once, without a link": {"give 1 " + other, "= 1 applied | a 2", "open", "= 1 applied | a 2", "give 2 {}", "= 2 applied | a 1"},
		"a session proves a link": {"give 1 " + linkB, "= 1 trial | b 1", "ask", "answer", "= 1 trial | b 1", "pass 59s", "session",
			"= 1 applied | b 1", "pass 2h", "= 1 applied | b 1", "open", "= 1 applied | b 1"},
		"an answer proves a link that goes on": {"ask", "give 1 " + quiet, "= 1 trial | quiet 1", "answer", "= 1 trial | quiet 1", "ask", "answer", "= 1 applied | quiet 1"},
		"so does a new session":                {"give 1 " + quiet, "session", "= 1 applied | quiet 1"},
		"rolled back": {"give 1 " + linkB, "pass 59s", "= 1 trial | b 1", "pass 1s", "= 1 refused | a 1 | the link did not come back within 1m0s",
			"session", "= 1 refused | a 1", "open", "= 1 refused | a 1 | the link did not come back within 1m0s", "give 2 " + other, "= 2 applied | a 2"},
		"to what was applied before": {"give 1 " + linkB, "session", "give 2 " + linkC, "= 2 trial | c 1", "pass 1m", "= 2 refused | b 1", "open", "= 2 refused | b 1",
			"give 3 {}", "= 3 trial | a 1", "session", "= 3 applied | a 1"},
		"a link that was down says nothing": {"down", "give 1 " + linkB, "pass 59m", "= 1 trial | b 1", "pass 1m", "= 1 refused | a 1 | the link did not come back within 1h0m0s"},
		"a trial over starts":               {"give 1 " + linkB, "open", "= 1 trial | b 1", "pass 59m", "open", "pass 59m", "open", "= 1 trial | b 1", "session", "= 1 applied | b 1", "open", "open", "= 1 applied | b 1"},
		"too many starts":                   {"give 1 " + linkB, "open", "open", "open", "= 1 trial | b 1", "open", "= 1 refused | a 1 | the agent was started 4 times", "open", "= 1 refused | a 1"},
		"a version within a trial":          {"give 1 " + linkB, "give 2 " + linkC, "= 2 trial | c 1", "pass 59s", "give 3 " + linkB, "pass 59s", "= 3 trial | b 1", "pass 1s", "= 3 refused | a 1"},
		"back within a trial":               {"give 1 " + linkB, "give 2 " + other, "= 2 applied | a 2", "pass 2h", "= 2 applied | a 2"},
		"refused within a trial":            {"give 1 " + linkB, `give 2 {"agent":{"spool":1}}`, "= 2 refused | a 1 | agent: json: unknown field \"spool\"", "pass 2h", "= 2 refused | a 1"},
		"refused, what was there stays":     {"give 1 " + other, `give 2 {"agent":{"link":7}}`, "= 2 refused | a 2", "open", "= 2 refused | a 2", "give 3 " + linkB, "pass 1m", "= 3 refused | a 2"},
		"the same version again":            {"give 1 " + linkB, "pass 30s", "give 1 " + linkB, "pass 30s", "= 1 refused | a 1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.t = t
			r.script(lines...)
		})
	}
}

// Whatever is wrong with a document, it is refused with a reason that can be
// reported, and what was in effect stays.
func TestRefusedDocuments(t *testing.T) {
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	for _, c := range []struct{ document, want string }{
		{`{`, "not a JSON object"}, {`{"a":1}}`, "not JSON"}, {`[]`, "not a JSON object"}, {`null`, "not a JSON object"}, {``, "not a JSON object"}, {`{"a":1}{}`, "not a JSON object"},
		{`{"agent":[]}`, "agent: is not an object"}, {`{"agent":null}`, "agent: is not an object"},
		{`{"agent":{"spool":{}}}`, `"spool"`}, {`{"agent":{"a\u0000\n` + strings.Repeat("x", 5000) + `":1}}`, "unknown field"},
		{`{"app":` + deep + `}`, "nested more than 32"}, {`{"agent":` + deep + `}`, "nested more than 32"},
		{`{"app":"` + strings.Repeat("x", wire.MaxDesired) + `"}`, "the limit is 65536"},
	} {
		r := newRig(t)
		r.script("give 1 " + other)
		if err := r.give("2", c.document); err != nil {
			t.Error(err)
		}
		r.want("2 refused | a 2 | ")
		if got := r.state(); !strings.Contains(got, c.want) {
			t.Errorf("%.40s: %s, want %s", c.document, got, c.want)
		}
		req := wire.CommandRequest{HubID: "h", Desired: r.asked()}
		data, err := json.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := wire.ParseCommandRequest(data); err != nil {
			t.Errorf("%.40s: the hub cannot read the report: %v", c.document, err)
		}
		if v := r.s.View(); v.InEffect != "1" || string(v.Document) != other {
			t.Errorf("programs see %+v", v)
		}
	}
	r := newRig(t)
	if err := r.give("1", `{"app":"`+strings.Repeat("x", wire.MaxDesired-10)+`"}`); err != nil {
		t.Error(err)
	}
	r.want("1 applied")
	r.open()
	r.want("1 applied")
}

// A document that an earlier start took, and the configuration of now does not.
func TestConfigurationChanges(t *testing.T) {
	for _, lines := range [][]string{{"give 1 " + other}, {"give 1 " + linkB}, {"give 0 " + other, "give 1 {"}} {
		r := newRig(t)
		r.script(lines...)
		parse := r.parse
		r.cfg.Parse = func(m json.RawMessage) (Part, error) {
			if string(m) != "{}" {
				return Part{}, errors.New("agent.x: not any more")
			}
			return parse(m)
		}
		r.open()
		r.want("1 refused | a 1 | ")
	}
}

// A file that cannot be used is set aside: the hub is told that nothing is known.
func TestDamagedFile(t *testing.T) {
	r := newRig(t)
	r.script("give 1 "+other, "= 1 applied | a 2")
	name := filepath.Join(r.cfg.Dir, fileName)
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if k, err := decode(bad); err == nil && fmt.Sprint(k) != fmt.Sprint(r.s.durable) {
			t.Fatalf("byte %d: %+v", i, k)
		}
	}
	for _, bad := range []string{"", "{}", string(good[:len(good)/2]), strings.Replace(string(good), `"format":1`, `"format":2`, 1), strings.Replace(string(good), `"n":1`, `"n":2`, 1)} {
		if err := os.WriteFile(name, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		r.log.Reset()
		r.open()
		r.want("| a 1")
		if aside, err := os.ReadFile(filepath.Join(r.cfg.Dir, asideName)); err != nil || string(aside) != bad || !strings.Contains(r.log.String(), asideName) {
			t.Errorf("%.30q: set aside %.30q, %v; log %s", bad, aside, err, r.log.String())
		}
		r.script("give 1 "+other, "= 1 applied | a 2")
	}
}

func TestProgramsSpeak(t *testing.T) {
	r := newRig(t)
	for _, version := range []string{"", "1"} {
		if err := r.s.Refuse(version, "x"); !errors.Is(err, ErrOther) || !strings.Contains(err.Error(), "the hub has given none yet") {
			t.Errorf("nothing is there: %v", err)
		}
	}
	r.script("give 1 " + linkB)
	if err := r.s.Refuse("1", "no such\npump"); err != nil {
		t.Error(err)
	}
	if err := r.s.Refuse("1", "another reason"); err != nil {
		t.Error(err)
	}
	r.script("= 1 trial | b 1", "session", "= 1 refused | b 1 | a program refuses it: no such pump", "open", "= 1 refused | b 1 | a program")
	if v := r.s.View(); v.InEffect != "1" || v.State != wire.DesiredRefused || v.Confirmed != nil {
		t.Errorf("%+v", v)
	}
	r.script("give 2 " + linkB)
	if err := r.s.Confirm("1"); !errors.Is(err, ErrOther) {
		t.Error(err)
	}
	if err := r.s.Confirm("2"); err != nil {
		t.Error(err)
	}
	r.script("= 2 applied | b 1", "open")
	if v := r.s.View(); v.Confirmed == nil || !v.Confirmed.Equal(r.now) {
		t.Errorf("%+v", v)
	}
	r.script("give 3 {")
	if err := errors.Join(r.s.Confirm("3"), r.s.Refuse("3", "")); !errors.Is(err, ErrOther) {
		t.Errorf("refused by the agent: %v", err)
	}
	r.script("give 4 {}", "session")
	if err := r.s.Refuse("4", ""); err != nil {
		t.Error(err)
	}
	r.want("4 refused | a 1 | a program refuses it")
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan string, maxWaiting)
		for range maxWaiting {
			go func() {
				v, err := r.s.Wait(ctx, func(v View) bool { return v.Version == "2" })
				got <- fmt.Sprint(v.Version, err)
			}()
		}
		synctest.Wait()
		if _, err := r.s.Wait(ctx, nil); !errors.Is(err, ErrMany) {
			t.Errorf("one too many: %v", err)
		}
		r.script("give 1 {}")
		synctest.Wait()
		if len(got) != 0 {
			t.Error("told of what is no news")
		}
		r.script("give 2 {}")
		for range maxWaiting {
			if s := <-got; s != "2<nil>" {
				t.Error(s)
			}
		}
		cancel()
		if v, err := r.s.Wait(ctx, func(View) bool { return false }); err != nil || v.Version != "2" {
			t.Errorf("at the end: %+v %v", v, err)
		}
	})
}

// Run ends a trial in time, and tells the hub by Updates.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Now = time.Now
		r.open()
		ctx, cancel := context.WithCancel(t.Context())
		e := r.s.Exchange(noCommands{})
		go r.s.Run(ctx)
		go e.Run(ctx)
		began := time.Now()
		r.script("give 1 " + linkB)
		<-e.Updates()
		<-e.Updates()
		if took := time.Since(began); took != time.Minute {
			t.Errorf("rolled back after %v", took)
		}
		r.want("1 refused | a 1")
		fail := true
		r.s.cfg.Fault = func(string) error {
			if fail {
				return errors.New("full")
			}
			return nil
		}
		if err := r.give("2", other); err == nil {
			t.Error("taken without a disk")
		}
		r.want("1 refused | a 1")
		r.s.mu.Lock()
		fail = false
		r.s.mu.Unlock()
		synctest.Wait()
		r.script("give 2 "+other, "= 2 applied | a 2")
		cancel()
		synctest.Wait()
	})
}

// What version 1 of the format has written can be read.
func TestFormat(t *testing.T) {
	name := filepath.Join("testdata", "v1.json")
	want := Kept{
		Version: Version{"v7", json.RawMessage(`{"agent":{"link":"b"}}`)}, State: wire.DesiredTrial, Reason: "r", At: 1_800_000_000_000,
		Before: &Version{"v6", json.RawMessage(`{"app":1}`)}, Starts: 2, Refusal: "a program refuses it: x", Confirmed: 1_800_000_000_001,
	}
	if data, err := encode(want); err != nil {
		t.Fatal(err)
	} else if os.Getenv("FIELDPOST_UPDATE_FORMAT") != "" {
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decode(data); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %v", got, err)
	}
}
