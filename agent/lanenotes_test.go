package agent

import (
	"strings"
	"testing"

	"github.com/fieldpost/fieldpost/sync/wire"
)

func TestLaneNotes(t *testing.T) {
	for _, c := range []struct {
		wide, narrow string
		covers       bool
	}{
		{"a.>", "a.b", true}, {"a.>", "a.b.c", true}, {"a.>", "a.>", true}, {"a.>", "a.*", true}, {">", "a", true}, {"a.*", "a.b", true},
		{"a", "a", true}, {"*.b", "a.b", true}, {"a.>", "a", false}, {"a.*", "a.>", false}, {"a.b", "a.*", false}, {"a.*", "a.b.c", false},
		{"a.b", "a", false}, {"a.*.>", "a.>", false}, {"*", "a.b", false},
	} {
		if covers(c.wide, c.narrow) != c.covers {
			t.Errorf("%s covers %s: %v", c.wide, c.narrow, !c.covers)
		}
	}
	cfg := Config{Lanes: []LaneRule{{"alarm.>", wire.Urgent}, {"logs.>", wire.Bulk}, {"alarm.test", wire.Bulk}}}
	if n := cfg.LaneNotes(); len(n) != 1 || !strings.Contains(n[0], "lanes[2]: alarm.test never applies, since lanes[0] (alarm.>, urgent)") {
		t.Errorf("%q", n)
	}
}

// TestLaneOrder: of two rules that match, the first wins; a lane that the
// publisher names wins over both, in a line as in a header.
func TestLaneOrder(t *testing.T) {
	w := start(t, func(c *Config) { c.Lanes = []LaneRule{{"alarm.test", wire.Bulk}, {"alarm.>", wire.Urgent}} })
	for _, c := range []struct{ line, want string }{
		{`{"subject":"alarm.test","payload":"x"}`, `"lane":"bulk"`},
		{`{"subject":"alarm.fire","payload":"x"}`, `"lane":"urgent"`},
		{`{"subject":"alarm.fire","payload":"x","lane":"normal"}`, `"lane":"normal"`},
	} {
		if r := w.do("POST", "/v1/publish", c.line+"\n"); r.status != 200 || !strings.Contains(r.body, c.want) {
			t.Errorf("%s: %d %s", c.line, r.status, r.body)
		}
	}
	if r := w.do("POST", "/v1/publish/alarm.test", "x"); r.status != 200 || !strings.Contains(r.body, `"lane":"bulk"`) {
		t.Errorf("%d %s", r.status, r.body)
	}
	r := w.do("POST", "/v1/publish", `{"subject":"alarm.test","payload":"x"}`+"\n"+`{"subject":"alarm.fire","payload":"x"}`+"\n")
	if p := r.problem(t); p.Code != "mixed_lanes" || p.Line != 2 || !strings.Contains(p.Detail, "lane urgent after bulk") {
		t.Errorf("two rules in one body: %d %s", r.status, r.body)
	}
}
