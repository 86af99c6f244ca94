package testenv

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// World is one hub and some agents as real processes, each agent behind its own link.
type World struct {
	TB       TB
	Dir      string
	Hub      *Process
	NATS     string   // host:port of the hub's NATS listener
	Servers  []string // of a cluster, that agents know beside NATS
	HTTP     string   // host:port of the hub's HTTP listener
	HubHTTP  []string // of a cluster: of every hub
	HubDir   string
	Agents   []*Agent
	Binaries Binaries
	History  *History

	loads []*Load
}

// Agent is one agent process.
type Agent struct {
	*Process
	Device string
	Dir    string // data_dir
	Socket string
	Link   *Proxy
	http   *http.Client
}

// NewWorld starts a hub; hubYAML is appended to its configuration.
func NewWorld(tb TB, hubYAML string) *World {
	tb.Helper()
	return NewWorldIn(tb, "", hubYAML)
}

// NewWorldIn is NewWorld with the hub's data below dir.
func NewWorldIn(tb TB, dir, hubYAML string) *World {
	tb.Helper()
	w := &World{TB: tb, Dir: shortDir(tb), Binaries: Build(tb), History: NewHistory()}
	w.NATS, w.HTTP = freeAddr(tb), freeAddr(tb)
	w.HubDir = filepath.Join(cmp.Or(dir, w.Dir), "hub")
	cfg := w.write("hub.yaml", fmt.Sprintf("data_dir: %q\nnats: {listen: %q, max_store: 4GiB}\nhttp: {listen: %q}\n%s", w.HubDir, w.NATS, w.HTTP, hubYAML))
	w.Hub = NewProcess(tb, "hub", filepath.Join(w.Dir, "hub.log"), w.Binaries.Hub, "run", "-c", cfg)
	w.StartHub()
	return w
}

// shortDir is a scratch folder whose path leaves room for a socket's name.
func shortDir(tb TB) string {
	dir, err := os.MkdirTemp("", "fp")
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() {
		if !tb.Failed() {
			os.RemoveAll(dir)
		} else {
			tb.Logf("kept: %s", dir)
		}
	})
	return dir
}

func (w *World) write(name, text string) string {
	path := filepath.Join(w.Dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.TB.Fatalf("%v", err)
	}
	return path
}

func freeAddr(tb TB) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("%v", err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// StartHub runs the hub and waits until it is ready.
func (w *World) StartHub() {
	w.TB.Helper()
	w.Hub.Start()
	w.WaitHub()
}

// WaitHub waits until the hub is ready.
func (w *World) WaitHub() {
	w.TB.Helper()
	Eventually(w.TB, 30*time.Second, "hub ready", func() error { return ok(http.Get("http://" + w.HTTP + "/readyz")) })
}

func ok(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1000)) // for the message only
		return fmt.Errorf("%s: %s", resp.Status, body)
	}
	return nil
}

// AddAgent starts an agent of that device; agentYAML is appended to its configuration.
func (w *World) AddAgent(device, agentYAML string) *Agent {
	w.TB.Helper()
	a := w.PrepareAgent(device, device, agentYAML)
	a.Start()
	w.WaitAgent(a)
	return a
}

// PrepareAgentIn makes an agent, without starting it, with its data below dir.
func (w *World) PrepareAgentIn(dir, device, agentYAML string) *Agent {
	w.TB.Helper()
	return w.prepare(device, filepath.Join(dir, device), device, agentYAML)
}

// PrepareAgent makes an agent without starting it; name is its folder.
func (w *World) PrepareAgent(name, device, agentYAML string) *Agent {
	w.TB.Helper()
	return w.prepare(name, filepath.Join(w.Dir, name), device, agentYAML)
}

func (w *World) prepare(name, dir, device, agentYAML string) *Agent {
	w.TB.Helper()
	link, err := NewProxy(w.NATS)
	if err != nil {
		w.TB.Fatalf("%v", err)
	}
	w.TB.Cleanup(link.Close)
	a := &Agent{Device: device, Dir: dir, Socket: filepath.Join(w.Dir, name+".sock"), Link: link}
	a.http = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", a.Socket)
	}}}
	w.TB.Cleanup(a.http.CloseIdleConnections)
	cfg := w.write(name+".yaml", fmt.Sprintf("device: %s\ndata_dir: %q\nsocket: {path: %q}\nhub: {urls: [\"nats://%s\"]}\n%s", device, a.Dir, a.Socket,
		strings.Join(append([]string{link.Addr()}, w.Servers...), `","nats://`), agentYAML))
	a.Process = NewProcess(w.TB, name, filepath.Join(w.Dir, name+".log"), w.Binaries.Agent, "run", "-c", cfg)
	w.Agents = append(w.Agents, a)
	return a
}

// configure replaces a text in an agent's configuration.
func (w *World) configure(a *Agent, old, new string) {
	w.TB.Helper()
	name := a.Device + ".yaml"
	text, err := os.ReadFile(filepath.Join(w.Dir, name))
	if err != nil || !strings.Contains(string(text), old) {
		w.TB.Fatalf("%s has no %q: %v", name, old, err)
	}
	w.write(name, strings.Replace(string(text), old, new, 1))
}

// WaitAgent waits until the agent takes messages.
func (w *World) WaitAgent(a *Agent) {
	w.TB.Helper()
	Eventually(w.TB, 20*time.Second, a.Device+" ready", func() error {
		if !a.Running() {
			return fmt.Errorf("it has ended")
		}
		return ok(a.http.Get("http://agent/readyz"))
	})
}

// AgentStatus is the part of GET /v1/status that tests look at.
type AgentStatus struct {
	Device, Epoch string
	Link          struct {
		Up        bool
		LastError string `json:"last_error"`
	}
	Backlog    map[string]struct{ Messages, Bytes int64 }
	Memory     int64 `json:"memory_bytes"`
	Dropped    map[string]int64
	Quarantine struct{ Segments, Messages int64 }
}

// Status asks the agent.
func (a *Agent) Status() (AgentStatus, error) {
	var s AgentStatus
	resp, err := a.http.Get("http://agent/v1/status")
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	return s, json.NewDecoder(resp.Body).Decode(&s)
}

// Post sends a request to the agent's socket.
func (a *Agent) Post(path, body string) error {
	return ok(a.http.Post("http://agent"+path, "", strings.NewReader(body)))
}

// Backlog is what the agent holds and the hub has not.
func (a *Agent) Backlog() (n int64, err error) {
	s, err := a.Status()
	for _, l := range s.Backlog {
		n += l.Messages
	}
	return n, err
}

// Drain waits until no running agent has a backlog.
func (w *World) Drain(limit time.Duration) {
	w.TB.Helper()
	for _, a := range w.Agents {
		if !a.Running() {
			continue
		}
		Eventually(w.TB, limit, a.Device+" drained", func() error {
			n, err := a.Backlog()
			if err == nil && n > 0 {
				s, _ := a.Status() // for the message only
				err = fmt.Errorf("%d messages left, link up %v, last error %q", n, s.Link.Up, s.Link.LastError)
			}
			return err
		})
	}
}

// stopLoads stops every load and waits for what is under way.
func (w *World) stopLoads() {
	for _, l := range w.loads {
		l.Stop()
	}
}
