package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/agent/client"
	"github.com/fieldpost/fieldpost/cmd/internal/conf"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// What the hub wants is read and checked as agent.yaml is.
func TestOverlaid(t *testing.T) {
	name := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(name, []byte("link: {daily_bytes: 1MiB}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, _, _, err := load(conf.Source{File: name})
	if err != nil {
		t.Fatal(err)
	}
	c, err := overlaid(file, []byte(`{"link":{"class":"lte","max_rate":"64KiB","flush":"2s","windows":[{"class":"lte","lanes":["bulk"],"cron":"0 1 * * *","for":"4h"}]},"lanes":[{"match":"alarm.>","lane":"urgent"}],"log":{"level":"warn"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if l := c.Link; l.Class != "lte" || l.MaxRate != 64<<10 || l.DailyBytes != 1<<20 || len(l.Windows) != 1 || c.Lanes[0].Lane != wire.Urgent || c.Level.String() != "WARN" {
		t.Errorf("%+v %+v %v", l, c.Lanes, c.Level)
	}
	for _, c := range []struct{ object, want string }{
		{`{"link":{"class":"lte"}}`, `agent.link.class: "lte" is not one of unmetered, metered`},
		{`{"link":{"flush":"2h"}}`, "agent.link.flush: 2h0m0s is not between"},
		{`{"link":{"windows":[{"lanes":["bulk"],"cron":"0 0 30 2 *","for":"1h"}]}}`, `agent.link.windows[0].cron: "0 0 30 2 *" never comes`},
		{`{"link":{"windows":[{"lanes":["fast"],"cron":"0 1 * * *","for":"1h"}]}}`, "agent.link.windows[0].lanes: "},
		{`{"lanes":[{"match":"a..b","lane":"bulk"},{"match":"a","lane":"fast"}]}`, "agent.lanes[0].match: "},
		{`{"spool":{}}`, "agent.spool: can be changed on the device only"},
	} {
		if _, err := overlaid(file, []byte(c.object)); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s\n got %v\nwant …%s…", c.object, err, c.want)
		}
	}
}

func TestPrintDesired(t *testing.T) {
	for _, c := range []struct {
		d    client.Desired
		want string
	}{
		{client.Desired{}, "the hub has said nothing of desired settings yet\n"},
		{client.Desired{Version: "v2", State: "refused", Reason: "agent.link.class: no", InEffect: "v1", Document: []byte(`{"a":1}`)},
			"version v2 is refused: agent.link.class: no\nin effect is v1\n{\n  \"a\": 1\n}\n"},
		{client.Desired{Version: "v2", State: "trial", InEffect: "v2", Document: []byte(`{}`)}, "version v2 is on trial until the hub is heard with it\n{}\n"},
		{client.Desired{Version: "v2", State: "refused", Reason: "x", Document: []byte(`{}`)}, "version v2 is refused: x\nin effect is the configuration alone\n{}\n"},
	} {
		var out bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetOut(&out)
		if err := printDesired(cmd, c.d); err != nil || out.String() != c.want {
			t.Errorf("%v\n got %s\nwant %s", err, out.String(), c.want)
		}
	}
}
