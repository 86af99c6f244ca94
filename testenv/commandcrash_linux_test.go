package testenv

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
)

const senders = 4 // of commands, each of its own subject

// carrier is a program on a device that carries out commands, and sometimes dies
// in the middle: before it does anything, before it acks, or before it hears the
// answer.
type carrier struct {
	a   *Agent
	rnd *rand.Rand // of the one goroutine

	mu       sync.Mutex
	order    []string       // ids in the order in which they first came
	handed   map[string]int // how often each came
	answered map[string]bool
	wrong    []string
}

// impossible commands are terminated.
func impossible(id string) bool { return strings.HasSuffix(id, "7") }

// carry runs until ctx ends.
func (c *carrier) carry(ctx context.Context) {
	for ctx.Err() == nil {
		if c.life(ctx) != nil {
			time.Sleep(20 * time.Millisecond) // the agent is away
		}
	}
}

func (c *carrier) life(ctx context.Context) error {
	ctx, die := context.WithCancel(ctx)
	defer die()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://agent/v1/commands?filter=valve.%3E", nil)
	if err != nil {
		return err
	}
	resp, err := c.a.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", resp.Status) // it is starting or stopping
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		var cmd struct{ ID, Payload string }
		if err := json.Unmarshal(lines.Bytes(), &cmd); err != nil || cmd.ID == "" {
			return c.fault("a line that is no command: %q", lines.Bytes())
		}
		c.come(cmd.ID)
		switch c.rnd.IntN(12) {
		case 0:
			return nil // dies before the ack
		case 1:
			if !impossible(cmd.ID) {
				return c.settle(ctx, cmd.ID, "ack", "did "+cmd.Payload) // dies before it has the answer
			}
		case 2:
			if err := c.settle(ctx, cmd.ID, "nak", "not now"); err != nil {
				return err
			}
			continue
		}
		verb := "ack"
		if impossible(cmd.ID) {
			verb = "term"
		}
		if err := c.settle(ctx, cmd.ID, verb, "did "+cmd.Payload); err != nil {
			return err
		}
		c.mu.Lock()
		c.answered[cmd.ID] = true
		c.mu.Unlock()
		if err := c.settle(ctx, cmd.ID, verb, "did it a second time"); err != nil { // the same answer, and no effect
			return err
		}
	}
	return lines.Err()
}

func (c *carrier) come(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answered[id] {
		c.wrong = append(c.wrong, id+" was handed out after its end was answered")
	}
	if c.handed[id]++; c.handed[id] == 1 {
		c.order = append(c.order, id)
	}
}

func (c *carrier) fault(format string, args ...any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := fmt.Errorf(format, args...)
	c.wrong = append(c.wrong, err.Error())
	return err
}

func (c *carrier) settle(ctx context.Context, id, verb, body string) error {
	req, err := http.NewRequestWithContext(ctx, "POST", "http://agent/v1/commands/"+id+"/"+verb, bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	resp, err := c.a.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusConflict {
		text, _ := io.ReadAll(resp.Body) // for the message only
		return c.fault("%s of %s: %s: %s", verb, id, resp.Status, text)
	}
	return ok(resp, nil)
}

// sendCommand sends to whichever hub answers until one has said that it is stored.
func (w *World) sendCommand(ctx context.Context, device, subject, id string) error {
	body, err := json.Marshal(admin.NewCommand{ID: id, Subject: subject, Payload: id, TTL: "1h"})
	if err != nil {
		return err
	}
	impatient := &http.Client{Timeout: 3 * time.Second} // the same id sent twice is the same command
	for try := 0; ; try++ {
		hubs := w.hubs()
		req, err := http.NewRequestWithContext(ctx, "POST", "http://"+hubs[try%len(hubs)]+"/v1/devices/"+device+"/commands", bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		if err = ok(impatient.Do(req)); err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond) // it starts again, or another leads
	}
}

// commandsUnder sends commands one after another, while hurt hurts whoever takes
// part; then it waits until the hub knows of each how it ended, and
// compares that with what the program saw.
func (w *World) commandsUnder(t *testing.T, a *Agent, rnd *rand.Rand, least int, hurt func()) {
	t.Helper()
	c := &carrier{a: a, rnd: rand.New(rand.NewPCG(rnd.Uint64(), 1)), handed: map[string]int{}, answered: map[string]bool{}}
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	work.Go(func() { c.carry(ctx) })
	hurting, sent := make(chan struct{}), make(chan []string, senders)
	for k := range senders {
		pace := rand.New(rand.NewPCG(rnd.Uint64(), 2))
		work.Go(func() {
			var ids []string
			for over := false; !over && ctx.Err() == nil; {
				id := fmt.Sprintf("c%d-%d", k, len(ids))
				if err := w.sendCommand(ctx, a.Device, fmt.Sprint("valve.", k), id); err != nil {
					t.Errorf("%s: %v", id, err)
					break
				}
				ids = append(ids, id)
				select {
				case <-hurting:
					over = true
				case <-time.After(time.Duration(pace.IntN(1000)) * time.Millisecond):
				}
			}
			sent <- ids
		})
	}
	hurt()
	close(hurting)
	for range senders {
		ids := <-sent
		for _, id := range ids {
			if impossible(id) {
				w.becomes(id, "failed")
			} else if cmd := w.becomes(id, "acked"); string(cmd.Result) != "did "+id {
				t.Errorf("%s: result %q", id, cmd.Result)
			}
		}
		c.check(t, ids)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, text := range c.wrong {
		t.Error(text)
	}
	if len(c.order) < least {
		t.Errorf("only %d commands were sent: the run proves little", len(c.order))
	}
	total := 0
	for _, n := range c.handed {
		total += n
	}
	t.Logf("%d commands were handed out %d times, and each ended once", len(c.order), total)
}

// check compares the order in which commands of one subject were sent with the
// one in which they came first.
func (c *carrier) check(t *testing.T, ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var came []string
	for _, id := range c.order {
		if slices.Contains(ids, id) {
			came = append(came, id)
		}
	}
	if !slices.Equal(came, ids) {
		t.Errorf("sent %v, first handed out %v", ids, came)
	}
}

// TestCommandsUnderKills: the agent, the hub and the program die again and again.
func TestCommandsUnderKills(t *testing.T) {
	short(t)
	_, rnd := seed(t)
	w := NewWorld(t, "")
	a := w.AddAgent("press-7", "")
	w.commandsUnder(t, a, rnd, 20, func() {
		for range *kills {
			time.Sleep(time.Duration(rnd.IntN(700)) * time.Millisecond) // the moment of death is the point
			switch rnd.IntN(3) {
			case 0:
				a.Kill()
				a.Start()
				w.WaitAgent(a)
			case 1:
				w.Hub.Kill()
				w.StartHub()
			default:
				a.Link.Cut(true)
				time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
				a.Link.Cut(false)
			}
		}
	})
}

// TestCommandsOnACluster: hubs and NATS servers die and hang. Settings go the same
// way afterwards.
func TestCommandsOnACluster(t *testing.T) {
	short(t)
	_, rnd := seed(t)
	w, c, hubs := NewClusterWorld(t, 2)
	a := w.AddAgent("press-7", "")
	w.commandsUnder(t, a, rnd, 8, func() { // while there is no leader, nothing is stored
		for range 2 {
			time.Sleep(time.Duration(rnd.IntN(1500)) * time.Millisecond)
			h := hubs[rnd.IntN(2)]
			h.Kill()
			leader := c.Leader("COMMANDS")
			c.Nodes[leader].Kill()
			time.Sleep(time.Duration(rnd.IntN(1500)) * time.Millisecond)
			h.Start()
			c.Nodes[leader].Start()
			c.Wait(leader)
			a.Kill()
			a.Start()
			w.WaitAgent(a)
		}
		leader := c.Leader("KV_fieldpost_commands")
		c.Nodes[leader].Signal(syscall.SIGSTOP) // it is cut off, and does not know it
		time.Sleep(4 * time.Second)
		c.Nodes[leader].Signal(syscall.SIGCONT)
		c.Wait(leader)
	})
	Eventually(t, 60*time.Second, "settings are stored", func() error {
		out, err := w.wants("press-7", `{"pump":{"speed":3}}`)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	a.has(`applied {"pump":{"speed":3}}`)
}
