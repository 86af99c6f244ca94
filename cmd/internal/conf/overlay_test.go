package conf

import (
	"strings"
	"testing"
	"time"
)

func TestOverlay(t *testing.T) {
	base, _, err := LoadAgent(Source{File: write(t, "link: {flush: 2s, max_rate: 64KiB}\nlanes: [{match: a, lane: bulk}]\n")})
	if err != nil {
		t.Fatal(err)
	}
	a, err := base.Overlay([]byte(`{"log":{"level":"debug"},"link":{"max_rate":"1KiB","windows":[{"lanes":["bulk"],"cron":"0 1 * * *","for":"4h"}]},"lanes":[{"match":"alarm.\u003e","lane":"urgent"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if a.Log.Level != "debug" || a.Link.MaxRate != 1<<10 || a.Link.Flush != Duration(2*time.Second) || len(a.Link.Windows) != 1 || a.Lanes[0].Match != "alarm.>" || a.Device != base.Device {
		t.Errorf("got %+v", a)
	}
	if base.Log.Level != "info" || base.Link.MaxRate != 64<<10 || len(base.Link.Windows) != 0 || base.Lanes[0].Match != "a" {
		t.Errorf("the base has changed: %+v", base)
	}
	for _, none := range []string{`{}`, `{"log":{},"link":null}`} {
		if a, err := base.Overlay([]byte(none)); err != nil || a.Link.MaxRate != 64<<10 || len(a.Lanes) != 1 {
			t.Errorf("%s: %+v %v", none, a, err)
		}
	}
	for _, c := range []struct{ object, want string }{
		{`{"spool":{"max_bytes":1}}`, "agent.spool: can be changed on the device only"},
		{`{"hub":{}}`, "agent.hub: can be changed on the device only"},
		{`{"access":[]}`, "agent.access: can be changed on the device only"},
		{`{"socket":{}}`, "agent.socket: can be changed on the device only"},
		{`{"log":{"format":"json"}}`, "agent.log.format: can be changed on the device only"},
		{`{"lnk":{}}`, "agent.lnk: unknown key; did you mean link?"},
		{`{"link":{"max":1}}`, "agent.link.max: unknown key"},
		{`{"link":{"max_rate":"1QiB"}}`, `agent.link.max_rate: "1QiB" is not a size`},
		{`{"link":{"max_rate":[]}}`, "agent.link.max_rate: is a list"},
		{`{"link":{"flush":2}}`, `agent.link.flush: "2" is not a duration`},
		{`{"link":7,"log":{"level":"loud"}}`, `agent.log.level: "loud" is not one of`},
		{`{"log":{"level":"debug","level":"info"}}`, "agent.log.level: is given twice"},
		{`[]`, "agent: is a list"},
	} {
		_, err := base.Overlay([]byte(c.object))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s\n got %v\nwant …%s…", c.object, err, c.want)
		}
	}
}
