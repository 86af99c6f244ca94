package testenv

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/agent/client"
)

// commandHub lets leases and backoffs end while a test waits.
const commandHub = "commands: {ack_wait: 2s, max_deliver: 10}\n"

// commandState is what the hub knows of a command.
type commandState struct {
	ID, State, Reason string
	Deliveries        int
	Result            []byte `json:"result_b64"`
}

// send stores a command at the hub; it is tried until the hub says that it has it.
func (w *World) send(device, id, subject, payload, ttl string) {
	w.TB.Helper()
	body, err := json.Marshal(map[string]string{"subject": subject, "id": id, "payload": payload, "ttl": ttl})
	if err != nil {
		w.TB.Fatalf("%v", err)
	}
	Eventually(w.TB, 30*time.Second, "send "+id, func() error {
		return ok(http.Post("http://"+w.HTTP+"/v1/devices/"+device+"/commands", "application/json", bytes.NewReader(body)))
	})
}

// hubs are the HTTP addresses of the hubs that can be asked.
func (w *World) hubs() []string {
	if len(w.HubHTTP) > 0 {
		return w.HubHTTP
	}
	return []string{w.HTTP}
}

// command is what any of the hubs knows of a command.
func (w *World) command(id string) (c commandState, err error) {
	for _, hub := range w.hubs() {
		if c, err = commandAt(hub, id); err == nil {
			break
		}
	}
	return c, err
}

func commandAt(hub, id string) (c commandState, err error) {
	resp, err := http.Get("http://" + hub + "/v1/commands/" + id)
	if err != nil {
		return c, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return c, fmt.Errorf("%s: %s", id, resp.Status)
	}
	return c, json.NewDecoder(resp.Body).Decode(&c)
}

// becomes waits until the hub knows a command in that state.
func (w *World) becomes(id, state string) (c commandState) {
	w.TB.Helper()
	Eventually(w.TB, 60*time.Second, id+" is "+state, func() (err error) {
		if c, err = w.command(id); err == nil && c.State != state {
			err = fmt.Errorf("it is %+v", c)
		}
		return err
	})
	return c
}

// performer is a program that subscribes and keeps an account of what it did.
type performer struct {
	end  context.CancelFunc
	done chan error

	mu   sync.Mutex
	seen []string // id/deliveries
}

// perform subscribes with handler through a client of its own.
func (a *Agent) perform(t *testing.T, filter string, handler client.Handler) *performer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c, err := client.Dial(ctx, a.Socket)
	if err != nil {
		t.Fatal(err)
	}
	p := &performer{end: cancel, done: make(chan error, 1)}
	go func() {
		p.done <- c.SubscribeMany(ctx, filter, 4, func(ctx context.Context, c client.Command) ([]byte, error) {
			p.mu.Lock()
			p.seen = append(p.seen, fmt.Sprintf("%s/%d", c.ID, c.Deliveries))
			p.mu.Unlock()
			return handler(ctx, c)
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-p.done; err != nil {
			t.Errorf("subscriber: %v", err)
		}
		c.Close()
	})
	return p
}

func (p *performer) had(id string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.seen {
		if strings.HasPrefix(s, id+"/") {
			n++
		}
	}
	return n
}

func operate(_ context.Context, c client.Command) ([]byte, error) {
	if string(c.Payload) == "fail" {
		return nil, fmt.Errorf("%w: no such valve", client.ErrTerminate)
	}
	return append([]byte("did "), c.Payload...), nil
}

// A command's way from an operator's command line to a program and back, with
// the device offline, its link cut, and commands that are too late or taken back.
func TestCommands(t *testing.T) {
	short(t)
	w := NewWorld(t, commandHub)
	a := w.AddAgent("press-7", "")
	one := a.perform(t, "valve.>", operate)
	two := a.perform(t, "valve.>", operate)

	out, err := exec.Command(w.Binaries.Hub, "send", "press-7", "valve.set", "open", "--id", "c1", "--wait", "--http", w.HTTP).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "did open") {
		t.Errorf("send --wait: %v\n%s", err, out)
	}
	if c := w.becomes("c1", "acked"); c.Deliveries != 1 || string(c.Result) != "did open" {
		t.Errorf("%+v", c)
	}
	if n := one.had("c1") + two.had("c1"); n != 1 {
		t.Errorf("c1 was handed out %d times", n)
	}
	if err := a.Post("/v1/commands/c1/ack", "again"); err != nil {
		t.Errorf("a repeated ack: %v", err)
	}
	w.send("press-7", "c2", "valve.set", "fail", "1h")
	if c := w.becomes("c2", "failed"); !strings.Contains(c.Reason, "no such valve") {
		t.Errorf("%+v", c)
	}

	a.Link.Cut(true)
	w.send("press-7", "cut", "valve.set", "later", "1h")
	a.Link.Cut(false)
	w.becomes("cut", "acked")

	w.send("press-7", "nobody", "other.subject", "x", "1h")
	w.becomes("nobody", "delivered")
	a.Kill()
	w.send("press-7", "offline", "valve.set", "offline", "1h")
	w.send("press-7", "late", "valve.set", "late", "1s")
	w.becomes("late", "expired")
	cancel, err := http.NewRequest("DELETE", "http://"+w.HTTP+"/v1/commands/nobody", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := ok(http.DefaultClient.Do(cancel)); err != nil {
		t.Error(err)
	}
	a.Start()
	w.WaitAgent(a)
	w.becomes("offline", "acked")
	w.becomes("nobody", "cancelled")
	if n := one.had("late") + two.had("late"); n != 0 {
		t.Errorf("an expired command was handed out %d times", n)
	}
	if err := a.Post("/v1/commands/nobody/ack", ""); err == nil || !strings.Contains(err.Error(), "409") {
		t.Errorf("ack of a cancelled command: %v", err)
	}
}
