package conf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

var home = []string{"HOME=/home/u", "PATH=/bin"}

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestDefaultsAreTheContract(t *testing.T) {
	a, _, err := LoadAgent(Source{File: write(t, "")})
	if err != nil {
		t.Fatal(err)
	}
	want := Agent{
		Labels: map[string]string{}, DataDir: "/var/lib/fieldpost",
		Socket: Socket{"/run/fieldpost/agent.sock", 0o660, "fieldpost", 512 << 10, 8 << 20},
		Hub:    HubLink{URLs: []string{"nats://127.0.0.1:4222"}},
		Spool: Spool{KeepFree: 64 << 20, WhenFull: "reject", CommitDelay: Duration(2 * time.Millisecond), Order: "fifo",
			FreshShare: 50, Durability: "disk"},
		Lanes: []LaneRule{}, Link: Link{Class: "unmetered", Windows: []Window{}}, Access: []AccessRule{},
		Log: Log{"info", "auto"},
	}
	if !reflect.DeepEqual(*a, want) {
		t.Errorf("agent defaults\n got %+v\nwant %+v", *a, want)
	}
	h, _, err := LoadHub(Source{File: write(t, "")})
	if err != nil {
		t.Fatal(err)
	}
	wantHub := Hub{
		DataDir: "/var/lib/fieldpost-hub",
		NATS:    NATS{Listen: "127.0.0.1:4222", URLs: []string{}, Replicas: 1},
		Auth:    Auth{"auto"}, Blocks: Blocks{Duration(24 * time.Hour), Share{Percent: 30}},
		Routes: []Route{{">", "EDGE", "edge", true, Duration(168 * time.Hour), Share{Percent: 50}, "old", "s2"}},
		Dead:   Dead{Duration(720 * time.Hour), Share{Percent: 10}},
		Commands: Commands{Duration(24 * time.Hour), Duration(30 * time.Second), 10, 1000,
			Share{Percent: 5}},
		Webhooks: []Webhook{}, HTTP: HTTP{Listen: "127.0.0.1:8420"}, Log: Log{"info", "auto"},
	}
	if !reflect.DeepEqual(*h, wantHub) {
		t.Errorf("hub defaults\n got %+v\nwant %+v", *h, wantHub)
	}
}

func TestMistakesHavePositions(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"unknown key", "spool:\n  max_byts: 1GiB\n", ":2:3: spool.max_byts: unknown key; did you mean max_bytes?"},
		{"unknown top key", "\nfoo: 1\n", ":2:1: foo: unknown key; known here: device, labels"},
		{"wrong case", "Device: a\n", ":1:1: Device: unknown key; did you mean device?"},
		{"twice", "device: a\ndevice: b\n", ":2:1: device: is given twice; the first is in line 1"},
		{"size", "spool: {max_bytes: 64QiB}\n", `:1:20: spool.max_bytes: "64QiB" is neither auto nor a size`},
		{"negative", "spool: {keep_free: -1}\n", `:1:20: spool.keep_free: "-1" is not a size`},
		{"huge", "spool: {keep_free: 99999999TiB}\n", `is not a whole number of bytes`},
		{"duration", "spool:\n  commit_delay: 10\n", `:2:17: spool.commit_delay: "10" is not a duration`},
		{"mode", "socket: {mode: 0990}", `:1:16: socket.mode: "0990" is not a file mode`},
		{"one of", "log: {level: loud}", `:1:14: log.level: "loud" is not one of debug, info, warn, error`},
		{"group for value", "device: [a]", ":1:9: device: is a list, but one value is wanted"},
		{"value for group", "spool: 7", `:1:8: spool: is the value "7", but keys are wanted here: max_bytes`},
		{"value for list", "lanes: urgent", `:1:8: lanes: is the value "urgent", but a list is wanted`},
		{"value for map", "labels: x", `:1:9: labels: is the value "x", but names with values are wanted`},
		{"no value", "device:\n", ":1:8: device: has no value"},
		{"in list", "lanes:\n- match: a\n  lain: bulk\n", ":3:3: lanes[0].lain: unknown key; did you mean lane?"},
		{"second document", "device: a\n---\ndevice: b\n", ": a second document begins here"},
		{"not yaml", "device: a\n  b: [\n", ": not YAML: "},
		{"not keys", "- a\n", ":1:1: is a list, but keys are wanted here"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := LoadAgent(Source{File: write(t, c.text)})
			if err == nil || !strings.Contains(err.Error(), "agent.yaml:") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant …%s…", err, c.want)
			}
		})
	}
}

func TestAllMistakesAreReportedAtOnce(t *testing.T) {
	_, _, err := LoadAgent(Source{File: write(t, "a: 1\nlog: [x]\n"), Environ: []string{"FIELDPOST_AGENT_LOG_FORMT=xml"}})
	var es Errors
	if !errors.As(err, &es) || len(es) != 3 {
		t.Fatalf("want 3 mistakes, got %v", err)
	}
}

func TestEmptyGroupsKeepDefaults(t *testing.T) {
	a, _, err := LoadAgent(Source{File: write(t, "spool:\n  # max_bytes: 1GiB\nlabels:\nlanes:\n")})
	if err != nil || a.Spool.KeepFree != 64<<20 {
		t.Errorf("got %+v, %v", a, err)
	}
}

func TestRouteNamesOnlyWhatDiffers(t *testing.T) {
	h, _, err := LoadHub(Source{File: write(t, "routes: [{match: 'logs.>', stream: LOGS, unpack: false}, {}]")})
	if err != nil {
		t.Fatal(err)
	}
	if r := h.Routes[0]; r.Prefix != "logs" || r.Unpack || r.MaxAge != Duration(168*time.Hour) || r.Compression != "s2" {
		t.Errorf("got %+v", r)
	}
	if r := h.Routes[1]; r.Prefix != "edge" || r.Match != ">" || !r.Unpack {
		t.Errorf("got %+v", r)
	}
}

func TestMistakesOfAPackageGetPlaces(t *testing.T) {
	file := write(t, "spool:\n  order: fresh-first\nmqtt: {tls: {key: k}}\nlanes: [{match: 'a>', lane: bulk}]\n")
	_, origins, err := LoadAgent(Source{File: file, Environ: []string{"FIELDPOST_AGENT_DEVICE=a b"}})
	if err != nil {
		t.Fatal(err)
	}
	sentinel := errors.New("configuration")
	found := errors.Join(
		errors.New("device: has a space"), errors.New("spool.order: fresh-first: later"), errors.New("mqtt: later"),
		errors.New("lanes[0].match: no filter"), errors.New("lanes[0].weight: none"), errors.New("log.level: loud"), errors.New("no key at all"))
	got := Place(fmt.Errorf("%w: %w", sentinel, found), origins).Error()
	want := strings.NewReplacer("F:", file+":").Replace(`FIELDPOST_AGENT_DEVICE: device: has a space
F:2:10: spool.order: fresh-first: later
F:3:19: mqtt: later
F:4:17: lanes[0].match: no filter
F:4:8: lanes[0].weight: none
default: log.level: loud
configuration: no key at all`)
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if err := Place(nil, origins); err != nil {
		t.Error(err)
	}
}

func TestEnvironment(t *testing.T) {
	file := write(t, "device: from-file\nlog: {level: warn}\n")
	a, origins, err := LoadAgent(Source{File: file, Environ: []string{
		"FIELDPOST_AGENT_SPOOL_MAX_BYTES=64MiB",
		"FIELDPOST_AGENT_DEVICE=press-7",
		`FIELDPOST_AGENT_HUB_URLS=["nats://a:4222","tls://b:4222"]`,
		`FIELDPOST_AGENT_LABELS={"site":"north"}`,
		`FIELDPOST_AGENT_LANES=[{"match":"alarm.>","lane":"urgent"}]`,
	}})
	if err != nil {
		t.Fatal(err)
	}
	if a.Device != "press-7" || a.Spool.MaxBytes != 64<<20 || len(a.Hub.URLs) != 2 || a.Labels["site"] != "north" || a.Lanes[0].Lane != "urgent" {
		t.Errorf("got %+v", a)
	}
	for key, want := range map[string]string{"device": "FIELDPOST_AGENT_DEVICE", "log.level": file + ":2:14", "log.format": "default"} {
		if origins[key] != want {
			t.Errorf("origin of %s: got %s, want %s", key, origins[key], want)
		}
	}
}

func TestEveryKeyHasAVariable(t *testing.T) {
	h := new(Hub)
	a := new(Agent)
	for prefix, cfg := range map[string]any{"FIELDPOST_AGENT_": a, "FIELDPOST_HUB_": h} {
		seen := map[string]string{}
		leaves(reflect.ValueOf(cfg).Elem(), "", func(key string, _ reflect.Value, _ reflect.StructTag) {
			name := Variable(prefix, key)
			if other := seen[name]; other != "" {
				t.Errorf("%s and %s are both %s", key, other, name)
			}
			seen[name] = key
			if serviceLink.MatchString(strings.TrimPrefix(name, prefix)) {
				t.Errorf("%s looks like what Kubernetes sets for a service", name)
			}
		})
	}
}

func TestEnvironmentMistakes(t *testing.T) {
	for _, c := range []struct{ env, want string }{
		{"FIELDPOST_AGENT_SPOOL_MAXBYTES=1", "FIELDPOST_AGENT_SPOOL_MAXBYTES: no such key; did you mean FIELDPOST_AGENT_SPOOL_MAX_BYTES?"},
		{"FIELDPOST_AGENT_SPOOL=1", "it is a group: set FIELDPOST_AGENT_SPOOL_MAX_BYTES"},
		{"FIELDPOST_AGENT_SPOOL_MAX_BYTES=lots", `FIELDPOST_AGENT_SPOOL_MAX_BYTES: spool.max_bytes: "lots" is neither`},
		{"FIELDPOST_AGENT_HUB_URLS=nats://a:1", "FIELDPOST_AGENT_HUB_URLS: hub.urls: a JSON list is wanted"},
		{"FIELDPOST_AGENT_LABELS=[1]", "names with values are wanted"},
		{`FIELDPOST_AGENT_LANES=[{"match":"a","lain":"bulk"}]`, "FIELDPOST_AGENT_LANES:1:15: lanes[0].lain: unknown key; did you mean lane?"},
	} {
		_, _, err := LoadAgent(Source{File: write(t, ""), Environ: []string{c.env}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n got %v\nwant …%s…", c.env, err, c.want)
		}
	}
}

func TestKubernetesServiceLinksAreNotOurs(t *testing.T) {
	_, _, err := LoadHub(Source{File: write(t, ""), Environ: []string{
		"FIELDPOST_HUB_SERVICE_HOST=10.0.0.1", "FIELDPOST_HUB_SERVICE_PORT=4222", "FIELDPOST_HUB_SERVICE_PORT_NATS=4222",
		"FIELDPOST_HUB_PORT=tcp://10.0.0.1:4222", "FIELDPOST_HUB_PORT_4222_TCP=tcp://10.0.0.1:4222",
		"FIELDPOST_HUB_PORT_4222_TCP_ADDR=10.0.0.1", "FIELDPOST_HUB_HTTP_SERVICE_HOST=10.0.0.1",
	}})
	if err != nil {
		t.Error(err)
	}
}

func TestWithoutAFileTheUsersPlaces(t *testing.T) {
	if _, err := os.Stat(AgentFile); err == nil {
		t.Skip("this machine has an agent configured")
	}
	a, origins, err := LoadAgent(Source{Environ: append(home, "XDG_RUNTIME_DIR=/run/user/7")})
	if err != nil {
		t.Fatal(err)
	}
	if a.DataDir != "/home/u/.local/share/fieldpost-agent" || a.Socket.Path != "/run/user/7/fieldpost/agent.sock" || a.Socket.Mode != 0o600 || a.Socket.Group != "" {
		t.Errorf("got %+v", a)
	}
	if origins["data_dir"] != "user" {
		t.Errorf("origin of data_dir: %s", origins["data_dir"])
	}
	a, _, _ = LoadAgent(Source{Environ: append(home, "XDG_DATA_HOME=/d", "FIELDPOST_AGENT_DATA_DIR=/elsewhere")})
	if a.DataDir != "/elsewhere" || a.Socket.Path != "/d/fieldpost-agent/agent.sock" {
		t.Errorf("got %+v", a)
	}
	if _, _, err = LoadAgent(Source{}); err == nil || !strings.Contains(err.Error(), "name a file with -c") {
		t.Errorf("without a home: %v", err)
	}
	long := "/" + strings.Repeat("x", 100)
	if s := userSocket(lookup([]string{"XDG_RUNTIME_DIR=" + long}), long); len(s) > maxSocketPath {
		t.Errorf("%s does not fit a socket address", s)
	}
}

func TestAnOrdinaryUsersFileKeepsTheUsersPlaces(t *testing.T) {
	env := append(home, "XDG_RUNTIME_DIR=/run/user/7")
	file := write(t, "device: press-7\n")
	a, origins, err := LoadAgent(Source{File: file, Environ: env, Ordinary: true})
	if err != nil {
		t.Fatal(err)
	}
	if a.DataDir != "/home/u/.local/share/fieldpost-agent" || a.Socket.Path != "/run/user/7/fieldpost/agent.sock" || a.Socket.Mode != 0o600 || a.Socket.Group != "" {
		t.Errorf("got %+v", a)
	}
	for key, want := range map[string]string{"data_dir": "user", "socket.path": "user", "device": file + ":1:9"} {
		if origins[key] != want {
			t.Errorf("origin of %s: got %s, want %s", key, origins[key], want)
		}
	}
	if a, _, _ := LoadAgent(Source{File: file, Environ: env}); a.DataDir != "/var/lib/fieldpost" || a.Socket.Path != "/run/fieldpost/agent.sock" {
		t.Errorf("root: %+v", a)
	}
	if a, _, err := LoadAgent(Source{File: file, Ordinary: true}); err != nil || a.DataDir != "/var/lib/fieldpost" {
		t.Errorf("without a home: %+v, %v", a, err)
	}
	a, _, _ = LoadAgent(Source{File: write(t, "data_dir: /d\nsocket: {path: /s}\n"), Environ: env, Ordinary: true})
	if a.DataDir != "/d" || a.Socket.Path != "/s" || a.Socket.Mode != 0o660 || a.Socket.Group != "fieldpost" {
		t.Errorf("all named: %+v", a)
	}
	h, origins, err := LoadHub(Source{File: write(t, "blocks: {retain: 48h}\n"), Environ: env, Ordinary: true})
	if err != nil || h.DataDir != "/home/u/.local/share/fieldpost-hub" || origins["data_dir"] != "user" {
		t.Errorf("hub: %+v, %v", h, err)
	}
}

func TestClientsLookWhereAgentsListen(t *testing.T) {
	for _, env := range [][]string{home, append(home, "XDG_RUNTIME_DIR=/run/user/7")} {
		a, _, err := LoadAgent(Source{Environ: env})
		if err != nil {
			t.Fatal(err)
		}
		if s := Sockets(env); s[0] != "/run/fieldpost/agent.sock" || s[len(s)-1] != a.Socket.Path && len(s) < 3 {
			t.Errorf("%v does not hold %s", s, a.Socket.Path)
		}
	}
	for _, env := range [][]string{{"FIELDPOST_SOCKET=/x", "FIELDPOST_AGENT_SOCKET_PATH=/y"}, {"FIELDPOST_AGENT_SOCKET_PATH=/x"}} {
		if s := Sockets(env); len(s) != 1 || s[0] != "/x" {
			t.Errorf("%v: got %v", env, s)
		}
	}
	if s := Sockets([]string{"XDG_RUNTIME_DIR=/run", "HOME=/h"}); len(s) != 1 {
		t.Errorf("a place twice: %v", s)
	}
}

func TestMissingFile(t *testing.T) {
	_, _, err := LoadAgent(Source{File: filepath.Join(t.TempDir(), "no.yaml")})
	if err == nil || !strings.Contains(err.Error(), "config example") {
		t.Errorf("got %v", err)
	}
}
