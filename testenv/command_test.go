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

func (w *World) command(id string) (c commandState, err error) {
	resp, err := http.Get("http://" + w.HTTP + "/v1/commands/" + id)
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

// Agent, hub and subscriber die at random moments, and the link is cut. Nothing
// is handed out after an answered ack, and every command ends as its program saw.
func TestCommandsThroughCrashes(t *testing.T) {
	short(t)
	_, rnd := seed(t)
	w := NewWorld(t, commandHub)
	a := w.AddAgent("press-7", "")
	const commands = 60
	var mu sync.Mutex
	acked, termed := map[string]bool{}, map[string]bool{}
	answer := func(id, verb string) error {
		err := a.Post("/v1/commands/"+id+"/"+verb, "did "+id)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			map[string]map[string]bool{"ack": acked, "term": termed}[verb][id] = true
		}
		return err
	}
	ctx, stop := context.WithCancel(t.Context())
	kill := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() { // a subscriber that dies in the midst of its work
		for ctx.Err() == nil {
			life, die := context.WithCancel(ctx)
			work.Go(func() {
				select {
				case <-kill:
				case <-life.Done():
				}
				die()
			})
			a.subscribeRaw(life, func(id string) {
				mu.Lock()
				if acked[id] || termed[id] {
					t.Errorf("%s was handed out after its answer", id)
				}
				mu.Unlock()
				verb := "ack"
				if strings.HasSuffix(id, "7") {
					verb = "term"
				}
				for life.Err() == nil && answer(id, verb) != nil {
					select {
					case <-life.Done():
					case <-time.After(20 * time.Millisecond):
					}
				}
			})
			die()
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	for i := range commands {
		w.send("press-7", fmt.Sprint("x", i), fmt.Sprint("s.", i%7), "do", "1h")
		switch rnd.IntN(8) {
		case 0:
			a.Kill()
			a.Start()
			w.WaitAgent(a)
		case 1:
			if i%3 == 0 {
				w.Hub.Kill()
				w.Hub.Start()
				w.WaitHub()
			}
		case 2:
			select {
			case kill <- struct{}{}:
			case <-time.After(time.Second):
			}
		case 3:
			a.Link.Cut(true)
			a.Link.Cut(false)
		}
		time.Sleep(time.Duration(rnd.IntN(100)) * time.Millisecond) // the moment of death is the point
	}
	for i := range commands {
		id := fmt.Sprint("x", i)
		want := map[bool]string{true: "failed", false: "acked"}[strings.HasSuffix(id, "7")]
		w.becomes(id, want)
	}
	stop()
	work.Wait()
	t.Logf("%d acked and %d terminated with an answer", len(acked), len(termed))
}

// subscribeRaw has one command at a time until ctx or the stream ends.
func (a *Agent) subscribeRaw(ctx context.Context, do func(id string)) {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://agent/v1/commands", nil)
	if err != nil {
		panic(err)
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return // the agent is down: the caller tries again
	}
	defer resp.Body.Close()
	for lines := json.NewDecoder(resp.Body); ; {
		var c struct{ ID string }
		if lines.Decode(&c) != nil || c.ID == "" {
			return
		}
		do(c.ID)
	}
}
