package alerts

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fieldpost/fieldpost/agent"
	"github.com/fieldpost/fieldpost/hub"
)

// ofPrometheus are labels that the scrape adds.
var ofPrometheus = []string{"instance", "job"}

type alertRule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         time.Duration     `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alertRules(t *testing.T) (out []alertRule) {
	t.Helper()
	text, err := os.ReadFile("../../packaging/prometheus/fieldpost.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string      `yaml:"name"`
			Rules []alertRule `yaml:"rules"`
		} `yaml:"groups"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		out = append(out, g.Rules...)
	}
	return out
}

// drawn is an expression of a dashboard.
type drawn struct{ where, expr, legend string }

func dashboards(t *testing.T) (out []drawn) {
	t.Helper()
	files, err := filepath.Glob("../../packaging/grafana/dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	uids := map[string]bool{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			UID, Title string
			Panels     []struct {
				ID      int
				Title   string
				GridPos struct{ X, Y, W, H int }
				Targets []struct{ Expr, LegendFormat string }
			}
		}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d.UID == "" || d.Title == "" || uids[d.UID] {
			t.Errorf("%s has no title, or no uid of its own", name)
		}
		uids[d.UID] = true
		at := map[[2]int]bool{}
		for _, p := range d.Panels {
			pos := [2]int{p.GridPos.X, p.GridPos.Y}
			if at[pos] || p.GridPos.W == 0 || len(p.Targets) == 0 {
				t.Errorf("%s: panel %q lies on another, or is empty", name, p.Title)
			}
			at[pos] = true
			for _, q := range p.Targets {
				out = append(out, drawn{d.UID + ": " + p.Title, q.Expr, q.LegendFormat})
			}
		}
	}
	return out
}

// printed is what a program's /metrics holds: by metric and label, the values.
type printed map[string]map[string]map[string]bool

var line = regexp.MustCompile(`^([a-z_]+)(?:\{(.*)\})? \S+$`)
var pair = regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)

func (p printed) read(t *testing.T, c *http.Client, url string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: %s %v", url, resp.Status, err)
	}
	for text := range strings.SplitSeq(string(body), "\n") {
		m := line.FindStringSubmatch(text)
		if m == nil {
			continue
		}
		if p[m[1]] == nil {
			p[m[1]] = map[string]map[string]bool{}
		}
		for _, l := range pair.FindAllStringSubmatch(m[2], -1) {
			if p[m[1]][l[1]] == nil {
				p[m[1]][l[1]] = map[string]bool{}
			}
			p[m[1]][l[1]][l[2]] = true
		}
	}
}

// printedByBoth runs a hub and an agent and reads what they print.
func printedByBoth(t *testing.T) printed {
	t.Helper()
	dir, err := os.MkdirTemp("", "fp") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h, err := hub.New(hub.Config{DataDir: filepath.Join(dir, "hub"), NATS: hub.NATS{Listen: "127.0.0.1:0", MaxStore: hub.Size{Bytes: 256 << 20}}, HTTP: hub.HTTP{Listen: "127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	running := []chan error{make(chan error, 1)}
	go func() { running[0] <- h.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		for _, done := range running {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	select {
	case <-h.Ready():
	case <-time.After(time.Minute):
		t.Fatal("the hub is not ready")
	}
	socket := filepath.Join(dir, "a.sock")
	a, err := agent.New(agent.Config{Device: "press-7", DataDir: filepath.Join(dir, "agent"), Socket: agent.SocketConfig{Path: socket}, Hub: agent.HubConfig{URLs: []string{"nats://" + h.Addrs().NATS}}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	running = append(running, done)
	go func() { done <- a.Run(ctx) }()
	var d net.Dialer
	local := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", socket) }}}
	t.Cleanup(local.CloseIdleConnections)
	deadline := time.Now().Add(time.Minute)
	for ready := false; !ready; {
		if resp, err := local.Get("http://agent/readyz"); err == nil {
			ready = resp.StatusCode == 200
			resp.Body.Close()
		}
		if time.Now().After(deadline) {
			t.Fatal("the agent is not ready")
		}
		time.Sleep(5 * time.Millisecond)
	}
	out := printed{}
	out.read(t, http.DefaultClient, "http://"+h.Addrs().HTTP+"/metrics")
	out.read(t, local, "http://agent/metrics")
	http.DefaultClient.CloseIdleConnections()
	return out
}

// words are the values that a matcher names.
func words(m matcher) []string {
	if m.op == "=~" || m.op == "!~" {
		return strings.Split(m.value, "|")
	}
	return []string{m.value}
}

// check reports what an expression uses that is not printed, and returns the
// labels that its result can have.
func (p printed) check(t *testing.T, where, expr string) []string {
	t.Helper()
	_, x, err := parseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return nil
	}
	labels := slices.Clone(ofPrometheus)
	for _, s := range x.selectors {
		have, there := p[s.name]
		if !there {
			t.Errorf("%s: no program prints %s", where, s.name)
		}
		labels = slices.AppendSeq(labels, maps.Keys(have))
		for _, m := range s.matchers {
			if slices.Contains(ofPrometheus, m.label) {
				continue
			}
			for _, w := range words(m) {
				if !have[m.label][w] {
					t.Errorf("%s: %s has no label %s=%q", where, s.name, m.label, w)
				}
			}
		}
	}
	if len(x.selectors) == 0 {
		t.Errorf("%s: %q uses no metric", where, expr)
	}
	for _, l := range x.grouped {
		if !slices.Contains(labels, l) {
			t.Errorf("%s: nothing in %q has the label %s", where, expr, l)
		}
	}
	if len(x.grouped) > 0 {
		return x.grouped
	}
	return labels
}

var inRule, inLegend = regexp.MustCompile(`\$labels\.([a-z_]+)`), regexp.MustCompile(`\{\{ *([a-z_]+) *\}\}`)

// TestAlertsAndDashboardsUseWhatIsPrinted: every metric, label and value that a
// rule or a panel names is on the real pages of a hub and an agent.
func TestAlertsAndDashboardsUseWhatIsPrinted(t *testing.T) {
	p := printedByBoth(t)
	names := map[string]bool{}
	for _, r := range alertRules(t) {
		labels := p.check(t, r.Alert, r.Expr)
		if names[r.Alert] || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s: it is there twice, or has no severity, summary or description", r.Alert)
		}
		names[r.Alert] = true
		for _, text := range r.Annotations {
			for _, m := range inRule.FindAllStringSubmatch(text, -1) {
				if !slices.Contains(labels, m[1]) {
					t.Errorf("%s: %q has no label %s", r.Alert, text, m[1])
				}
			}
		}
	}
	for _, d := range dashboards(t) {
		labels := p.check(t, d.where, d.expr)
		for _, m := range inLegend.FindAllStringSubmatch(d.legend, -1) {
			if !slices.Contains(labels, m[1]) {
				t.Errorf("%s: the legend %q has no label %s", d.where, d.legend, m[1])
			}
		}
	}
}
