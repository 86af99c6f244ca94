package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/agent/client"
	"github.com/fieldpost/fieldpost/agent/frame"
	"github.com/fieldpost/fieldpost/spool"
	"github.com/fieldpost/fieldpost/sync/wire"
)

var background = context.Background()

func TestClientPublish(t *testing.T) {
	w := start(t, func(c *Config) { c.Lanes = []LaneRule{{Match: "alarm.>", Lane: wire.Urgent}} })
	c := w.dial()
	if c.Device() != "dev1" {
		t.Errorf("device %q", c.Device())
	}
	at := time.Date(2024, 2, 29, 12, 0, 0, 123e6, time.UTC)
	m := client.Message{
		Subject: "a.b", Payload: []byte("\x00x"), ID: "i1", Lane: client.Bulk, TTL: 1500 * time.Microsecond, Time: at,
		Headers: []client.Header{{Key: "B", Value: "1"}, {Key: "A", Value: ""}},
	}
	want := client.Receipt{Epoch: w.store.epoch.String(), Lane: client.Bulk, Seq: 1}
	if r, err := c.Publish(background, m); err != nil || r != want {
		t.Errorf("%+v %v", r, err)
	}
	stored := wire.Message{Subject: "a.b", Payload: []byte("\x00x"), ID: "i1", TTL: 2, Time: at.UnixMilli(),
		Headers: []wire.Pair{{Key: "B", Value: "1"}, {Key: "A", Value: ""}}}
	if got := w.store.stored(wire.Bulk); len(got) != 1 || !reflect.DeepEqual(got[0], stored) {
		t.Errorf("stored %+v", got)
	}
	want.Duplicate = true
	if r, err := c.Publish(background, m); err != nil || r != want {
		t.Errorf("again: %+v %v", r, err)
	}
	if r, err := c.Publish(background, client.Message{Subject: "alarm.x"}); err != nil || r.Lane != client.Urgent {
		t.Errorf("by rule: %+v %v", r, err)
	}
	if r, err := c.Publish(background, client.Message{Subject: "m", Ack: client.Memory}); err != nil || r != (client.Receipt{Lane: client.Normal}) {
		t.Errorf("in memory: %+v %v", r, err)
	}
	r, err := c.Publish(background, client.Message{Subject: "h", Ack: client.Hub, HubTimeout: time.Millisecond})
	if err != nil || r.Hub || r.Seq != 2 {
		t.Errorf("not at the hub: %+v %v", r, err)
	}
	p := c.PublishAsync(client.Message{Subject: "h", Ack: client.Hub})
	later := c.PublishAsync(client.Message{Subject: "h"}) // is answered before
	if _, err := later.Wait(background); err != nil {
		t.Error(err)
	}
	w.store.deliver(wire.Normal, 3)
	if r, err := p.Wait(background); err != nil || !r.Hub || r.Seq != 3 {
		t.Errorf("at the hub: %+v %v", r, err)
	}
}

func TestClientRefused(t *testing.T) {
	w := start(t, func(c *Config) { c.Socket.MaxPayload = 100 })
	c := w.dial()
	for _, x := range []struct {
		name string
		m    client.Message
		code string
	}{
		{"empty subject", client.Message{}, "bad_subject"},
		{"wildcard", client.Message{Subject: "a.*"}, "bad_subject"},
		{"256 bytes", client.Message{Subject: strings.Repeat("s", 256)}, "bad_subject"},
		{"very long", client.Message{Subject: strings.Repeat("s", 1<<20)}, "bad_header"},
		{"system", client.Message{Subject: "$SYS.x"}, "bad_subject"},
		{"oversize", client.Message{Subject: "a", Payload: make([]byte, 101)}, "too_large"},
		{"far oversize", client.Message{Subject: "a", Payload: make([]byte, 9<<20)}, "too_large"},
		{"lane", client.Message{Subject: "a", Lane: "express"}, "bad_lane"},
		{"negative ttl", client.Message{Subject: "a", TTL: -1}, "bad_ttl"},
		{"year", client.Message{Subject: "a", Time: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, "bad_header"},
		{"id", client.Message{Subject: "a", ID: "a\nb"}, "bad_header"},
		{"header", client.Message{Subject: "a", Headers: []client.Header{{Key: "nats-x"}}}, "bad_header"},
		{"headers", client.Message{Subject: "a", Headers: []client.Header{{Key: "x", Value: strings.Repeat("v", 5000)}}}, "bad_header"},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, err := c.Publish(background, x.m)
			if e := new(client.Error); !errors.As(err, &e) || e.Code != x.code || e.Detail == "" {
				t.Errorf("%v", err)
			}
		})
	}
	w.nothingStored()
	if _, err := c.Publish(background, client.Message{Subject: "a", Payload: make([]byte, 100)}); err != nil {
		t.Errorf("after all that: %v", err)
	}
	w.store.set(func() { w.store.fail, w.store.err = spool.ErrFull, spool.ErrFull })
	for _, ack := range []client.Ack{client.Disk, client.Memory, client.Hub} {
		if _, err := c.Publish(background, client.Message{Subject: "a", Ack: ack}); !errors.Is(err, &client.Error{Code: "spool_full"}) {
			t.Errorf("ack %d: %v", ack, err)
		}
	}
}

// What one program publishes is stored in its order, each message once, and each
// receipt names the place where its message is.
func TestPipelinedOrder(t *testing.T) {
	w := start(t, nil)
	const programs, each = 8, 5000
	var wg sync.WaitGroup
	for n := range programs {
		c := w.dial()
		wg.Go(func() {
			var waits [each]*client.Pending
			for i := range waits {
				m := client.Message{Subject: fmt.Sprintf("p%d.s%d", n, i%300), Payload: fmt.Appendf(nil, "%d/%d", n, i)}
				switch {
				case i%97 == 0:
					m.ID = fmt.Sprintf("%d-%d", n, i)
				case i%211 == 0:
					m.Payload = append(m.Payload, make([]byte, 100<<10)...) // does not fit a chunk
				case i%5 == 0:
					m.Lane = client.Urgent
				case i%501 == 0:
					m.Subject = "not..a.subject"
				}
				waits[i] = c.PublishAsync(m)
			}
			if err := c.Flush(background); err != nil {
				t.Error(err)
			}
			last := map[client.Lane]uint64{}
			for i, p := range waits {
				r, err := p.Wait(background)
				if i%501 == 0 && i%97 != 0 && i%211 != 0 && i%5 != 0 {
					if !errors.Is(err, &client.Error{Code: "bad_subject"}) {
						t.Errorf("%d: %v", i, err)
					}
					continue
				}
				if urgent := i%97 != 0 && i%211 != 0 && i%5 == 0; urgent != (r.Lane == client.Urgent) && err == nil {
					t.Errorf("%d: lane %s", i, r.Lane)
				}
				if err != nil || r.Seq <= last[r.Lane] {
					t.Errorf("%d: %+v %v after %d", i, r, err, last[r.Lane])
					return
				}
				last[r.Lane] = r.Seq
				lane, _ := wire.ParseLane(string(r.Lane))
				m := w.store.stored(lane)[r.Seq-1]
				if want := fmt.Sprintf("%d/%d", n, i); string(bytes.TrimRight(m.Payload, "\x00")) != want {
					t.Errorf("%d: at %d is %.20q", i, r.Seq, m.Payload)
					return
				}
			}
		})
	}
	wg.Wait()
	for l := range wire.Lane(wire.NumLanes) {
		seen := map[string]bool{}
		for _, m := range w.store.stored(l) {
			if k := string(bytes.TrimRight(m.Payload, "\x00")); seen[k] {
				t.Errorf("%s is stored twice", k)
			} else {
				seen[k] = true
			}
		}
	}
	w.noMemoryHeld()
}

// In one write: what was accepted before, and what was not, each with its own answer.
func TestDuplicatesInAPipeline(t *testing.T) {
	w := start(t, nil)
	c := w.dial()
	for i := range 5 {
		if _, err := c.Publish(background, client.Message{Subject: "a", ID: fmt.Sprint("id", i)}); err != nil {
			t.Fatal(err)
		}
	}
	var text []byte
	for i := range 10 {
		m := frame.Publish{Subject: "a"}
		if i%2 == 0 {
			m.ID = fmt.Sprint("id", i/2)
		}
		text = frame.AppendPublish(text, &m)
	}
	_, _, receipts := frames(t, w.path, text, true)
	want := uint64(6)
	for n := range uint64(10) {
		r := receipts[n+1]
		if n%2 == 0 && (!r.Duplicate || r.Seq != n/2+1) || n%2 == 1 && (r.Duplicate || r.Seq != want) {
			t.Errorf("%d: %+v", n+1, r)
		}
		want += n % 2
	}
}

// noMemoryHeld waits until all budgets are given back.
func (w *world) noMemoryHeld() {
	w.t.Helper()
	f := &w.a.frames
	for name, b := range map[string]*budget{"bodies": w.a.bodies, "lines": w.a.lines, "large": f.large, "messages": f.messages, "hub": f.hub} {
		w.eventually(name+" are given back", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			used := b.used
			if name == "bodies" {
				f.chunks.mu.Lock()
				used -= f.chunks.used // an open connection reads into one
				f.chunks.mu.Unlock()
			}
			return used == 0
		})
	}
}

func TestConnectionBreaks(t *testing.T) {
	w := start(t, nil)
	hold := make(chan struct{})
	w.store.set(func() { w.store.hold = hold })
	c := w.dial()
	p := c.PublishAsync(client.Message{Subject: "a"})
	w.eventually("with the store", func() bool { w.a.gate.mu.Lock(); defer w.a.gate.mu.Unlock(); return w.a.gate.busy == 1 })
	ctx, cancel := context.WithCancel(background)
	cancel()
	if _, err := p.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("wait that ends: %v", err)
	}
	if err := c.Flush(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("flush that ends: %v", err)
	}
	c.Close()
	if _, err := p.Wait(background); !errors.Is(err, &client.Error{Code: client.CodeUnknown}) {
		t.Errorf("broken: %v", err)
	}
	if _, err := c.Publish(background, client.Message{Subject: "a"}); !errors.Is(err, &client.Error{Code: client.CodeClosed}) {
		t.Errorf("closed: %v", err)
	}
	if err := c.Flush(background); err == nil {
		t.Error("flush does not tell that an answer is missing")
	}
	close(hold)
	w.eventually("what was sent is stored", func() bool { return len(w.store.stored(wire.Normal)) == 1 })
}

// frames sends bytes after the preface and returns the frames that come back.
func frames(t testing.TB, path string, text []byte, closeWrite bool) (types []frame.Type, errs []frame.Error, receipts map[uint64]frame.Receipt) {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(c, frame.Preface)
	c.Write(text)
	if closeWrite {
		c.(*net.UnixConn).CloseWrite()
	}
	all, err := io.ReadAll(c)
	if err != nil && len(all) == 0 {
		t.Fatalf("%x: no answer: %v", text, err)
	}
	receipts = map[uint64]frame.Receipt{}
	for len(all) > 0 {
		typ, body, rest, need, err := frame.Next(all, 1<<20)
		if err != nil || need > 0 {
			t.Fatalf("%x: answer %x: %v", text, all, err)
		}
		if typ == frame.TypeError {
			e, err := frame.ParseError(body)
			if err != nil {
				t.Fatal(err)
			}
			errs = append(errs, e)
		}
		if typ == frame.TypeReceipt {
			r, err := frame.ParseReceipt(body)
			if err != nil {
				t.Fatal(err)
			}
			for i := range r.Count {
				receipts[r.First+i] = r
				r.Seq++
			}
		}
		types = append(types, typ)
		all = rest
	}
	return types, errs, receipts
}

func TestBrokenFrames(t *testing.T) {
	w := start(t, func(c *Config) { c.BodyTimeout = 50 * time.Millisecond })
	ok := frame.AppendPublish(nil, &frame.Publish{Subject: "a"})
	for _, c := range []struct {
		name  string
		text  []byte
		close bool
		code  string
		first uint64
	}{
		{"no length", append(bytes.Clone(ok), 0, 0, 0, 0, 1), false, "bad_request", 2},
		{"half a frame", append(bytes.Clone(ok), ok[:7]...), false, "timeout", 2},
		{"half a frame, closed", append(bytes.Clone(ok), ok[:7]...), true, "bad_request", 2},
		{"half a head, closed", ok[:3], true, "bad_request", 1},
		{"too large", binary.LittleEndian.AppendUint32(nil, 1<<30), false, "bad_request", 1},
		{"too large, with type", append(binary.LittleEndian.AppendUint32(nil, 1<<30), 1), false, "too_large", 1},
		{"unknown type", []byte{1, 0, 0, 0, 2}, false, "bad_request", 1},
		{"type of the agent", frame.AppendReceipt(nil, frame.Receipt{First: 1, Count: 1}), false, "bad_request", 1},
		{"no publish", []byte{2, 0, 0, 0, 1, 0}, false, "bad_request", 1},
		{"unknown flag", []byte{4, 0, 0, 0, 1, 0x80, 1, 'a'}, false, "bad_request", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "too large" {
				c.code = "timeout" // only the length came
			}
			types, errs, _ := frames(t, w.path, c.text, c.close)
			if types[0] != frame.TypeHello || len(errs) != 1 || errs[0].Code != c.code || errs[0].First != c.first || errs[0].Count != 0 || errs[0].Detail == "" {
				t.Errorf("%v %+v", types, errs)
			}
			if c.first == 2 && types[1] != frame.TypeReceipt {
				t.Errorf("what came before has no receipt: %v", types)
			}
		})
	}
	w.noMemoryHeld()
}

// A frame that trickles in holds memory that others may wait for: its time is
// bounded as a whole.
func TestTricklingFrame(t *testing.T) {
	w := start(t, func(c *Config) { c.BodyTimeout = 200 * time.Millisecond })
	c, err := net.Dial("unix", w.path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, frame.Preface)
	c.Write(frame.AppendPublish(nil, &frame.Publish{Subject: "a", Fields: frame.Fields{Payload: make([]byte, 100<<10)}})[:70<<10])
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		io.Copy(io.Discard, c)
	}()
	deadline := time.Now().Add(20 * time.Second)
	for {
		select {
		case <-ended:
			w.noMemoryHeld()
			return
		case <-time.After(5 * time.Millisecond):
			c.Write([]byte{0})
		}
		if time.Now().After(deadline) {
			t.Fatal("it goes on for ever")
		}
	}
}

// A program that sends and never reads is held back, whatever it sends, and
// given up in the end.
func TestProgramThatNeverReads(t *testing.T) {
	// What the socket holds in both directions, and 256 KiB of answers. A refusal is
	// half as long as its publish here, a receipt an eighth.
	for subject, most := range map[string]int{"$": 4 << 20, "a": 10 << 20} {
		limit := 500 * time.Millisecond
		w := start(t, func(c *Config) { c.BodyTimeout = limit })
		c, err := net.Dial("unix", w.path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, frame.Preface)
		text := frame.AppendPublish(nil, &frame.Publish{Subject: subject, ID: strings.Repeat("i", 200)})
		text = bytes.Repeat(text, 100)
		sent := 0
		for {
			c.SetWriteDeadline(time.Now().Add(20 * time.Second))
			n, err := c.Write(text)
			sent += n
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal("the agent neither takes nor closes")
			}
			if err != nil {
				break // given up
			}
		}
		if sent > most {
			t.Errorf("%q: %d bytes were taken", subject, sent)
		}
		if _, err := w.dial().Publish(background, client.Message{Subject: "a"}); err != nil {
			t.Error(err)
		}
		w.noMemoryHeld()
	}
}

// Idle connections and large messages on few bytes of memory: nobody waits for ever.
func TestFramesShareLittleMemory(t *testing.T) {
	w := start(t, func(c *Config) { c.Socket.MaxPayload, c.Socket.MaxInflight = 256<<10, 256<<10 })
	for range 20 {
		if _, err := w.dial().Publish(background, client.Message{Subject: "idle", Payload: make([]byte, 3000)}); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for range 8 {
		c := w.dial()
		wg.Go(func() {
			var last *client.Pending
			for i := range 40 {
				last = c.PublishAsync(client.Message{Subject: "big", Payload: make([]byte, i*6<<10)})
			}
			if _, err := last.Wait(background); err != nil {
				t.Error(err)
			}
			if err := c.Flush(background); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(w.store.stored(wire.Normal)); n != 20+8*40 {
		t.Errorf("%d stored", n)
	}
	w.noMemoryHeld()
}

// A large frame that comes in parts, however they are cut, waits for no memory
// but its own.
func TestLargeFrameInParts(t *testing.T) {
	w := start(t, func(c *Config) { c.Socket.MaxPayload, c.Socket.MaxInflight = 256<<10, 256<<10 })
	text := frame.AppendPublish(nil, &frame.Publish{Subject: "a", Fields: frame.Fields{Payload: make([]byte, 250<<10)}})
	c, err := net.Dial("unix", w.path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(c, frame.Preface)
	for stored := 1; stored <= 3; stored++ {
		rest := text
		for _, n := range []int{3, 2, 100, 4000, 60000, len(text) - 64105 - 1100, 300, 700, 99} {
			if _, err := c.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
			time.Sleep(time.Millisecond) // makes it likely that the agent reads it so; right either way
		}
		if _, err := c.Write(rest); err != nil {
			t.Fatal(err)
		}
		w.eventually("stored", func() bool { return len(w.store.stored(wire.Normal)) == stored })
	}
}

func FuzzFrames(f *testing.F) {
	ok := frame.AppendPublish(nil, &frame.Publish{Subject: "a", ID: "i", Headers: []frame.Pair{{Key: "k", Value: "v"}}})
	f.Add(ok)
	f.Add(append(bytes.Clone(ok), ok...))
	f.Add(ok[:9])
	f.Add([]byte{1, 0, 0, 0, 2})
	w := start(f, nil)
	f.Fuzz(func(t *testing.T, text []byte) {
		types, errs, _ := frames(t, w.path, text, true)
		if len(types) == 0 || types[0] != frame.TypeHello {
			t.Fatalf("%x: %v %v", text, types, errs)
		}
		for _, e := range errs {
			if _, known := kinds[e.Code]; !known {
				t.Fatalf("%x: %+v", text, e)
			}
		}
	})
}
