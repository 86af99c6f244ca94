package conf

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestShownConfigurationReadsBackTheSame(t *testing.T) {
	text := "device: a\nlabels: {b: c, \"1\": \"yes\"}\nlanes: [{match: 'a.>', lane: bulk}]\nspool: {max_bytes: 1536MiB, commit_delay: 1500ms}\nsocket: {mode: 0600}\n"
	a, origins, err := LoadAgent(Source{File: write(t, text)})
	if err != nil {
		t.Fatal(err)
	}
	shown, err := Show(a, origins)
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := LoadAgent(Source{File: write(t, string(shown))})
	if err != nil {
		t.Fatalf("%v in\n%s", err, shown)
	}
	if !reflect.DeepEqual(a, again) {
		t.Errorf("got  %+v\nwant %+v\nfrom\n%s", again, a, shown)
	}
	h, origins, _ := LoadHub(Source{File: write(t, "")})
	shown, _ = Show(h, origins)
	if again, _, err := LoadHub(Source{File: write(t, string(shown))}); err != nil || !reflect.DeepEqual(h, again) {
		t.Errorf("got %+v, %v from\n%s", again, err, shown)
	}
}

func TestShowTellsOrigins(t *testing.T) {
	a, origins, err := LoadAgent(Source{File: write(t, "log: {level: warn}"), Environ: []string{`FIELDPOST_AGENT_HUB_URLS=["nats://u:secret@h:1"]`}})
	if err != nil {
		t.Fatal(err)
	}
	shown, _ := Show(a, origins)
	for _, want := range []string{"level: warn # ", "agent.yaml:1:14", "format: auto # default", "# FIELDPOST_AGENT_HUB_URLS", "nats://u:xxxxx@h:1"} {
		if !strings.Contains(string(shown), want) {
			t.Errorf("%q is missing in\n%s", want, shown)
		}
	}
	asJSON, _ := json.Marshal(JSON(a, origins))
	for _, text := range []string{string(shown), string(asJSON)} {
		if strings.Contains(text, "secret") {
			t.Errorf("a password is shown in\n%s", text)
		}
	}
	if !strings.Contains(string(asJSON), `"log.level":"`) || !strings.Contains(string(asJSON), `"level":"warn"`) {
		t.Errorf("got %s", asJSON)
	}
}

func TestValuesKeepTheirText(t *testing.T) {
	for _, s := range []string{"0", "1", "1023", "64KiB", "1GiB", "3TiB", "1536MiB"} {
		var v Size
		if err := v.UnmarshalText([]byte(s)); err != nil || v.String() != s {
			t.Errorf("%s reads back as %s, %v", s, v, err)
		}
	}
	for _, s := range []string{"0s", "2ms", "1.5s", "10s", "1m", "1h1m", "1h0m5s", "24h", "168h"} {
		var v Duration
		if err := v.UnmarshalText([]byte(s)); err != nil || text(v) != s {
			t.Errorf("%s reads back as %s, %v", s, text(v), err)
		}
	}
	for _, bad := range []string{"", "KiB", "1e3", "0x10", "1_000", "NaN", "Inf", "-1", "1.5", "1 2"} {
		var v Size
		if err := v.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("size %q was taken as %s", bad, v)
		}
	}
	var v Size
	if err := v.UnmarshalText([]byte("1.5 MiB")); err != nil || v != 3<<19 {
		t.Errorf("1.5 MiB is %s, %v", v, err)
	}
}
