package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"sync"
	"time"

	"github.com/fieldpost/fieldpost/agent/client"
	"github.com/fieldpost/fieldpost/sync/wire"
	"github.com/fieldpost/fieldpost/testenv"
)

// every is how often the machine is read.
const every = 50 * time.Millisecond

// inFlight is how many messages may wait for their receipt.
const inFlight = 64

// publisher is one sequential source of messages of one agent. It keeps an
// account of what was sent and what was acknowledged.
type publisher struct {
	w      *testenv.World
	a      *testenv.Agent
	source string
	n      int
	conn   *client.Client // nil: dial
	flight []sent
	wg     sync.WaitGroup
}

type sent struct {
	p       testenv.Published
	pending *client.Pending
}

// startPublisher publishes the readings of this machine until ctx ends.
func startPublisher(ctx context.Context, w *testenv.World, a *testenv.Agent) *publisher {
	p := &publisher{w: w, a: a, source: "readings"}
	p.wg.Go(func() {
		defer p.close()
		var m meter
		m.read() // the share of busy time needs two looks
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				for _, r := range m.read() {
					p.publish(ctx, r.Subject, struct {
						reading
						Time time.Time `json:"time"`
						N    int       `json:"n"`
					}{r, now.UTC(), p.n + 1})
				}
			}
		}
	})
	return p
}

// linePause keeps a long input from filling the whole minute: 2,000 lines a second.
const linePause = 500 * time.Microsecond

// startLines publishes each line of standard input, unless that is a terminal.
func startLines(ctx context.Context, w *testenv.World, a *testenv.Agent) *publisher {
	p := &publisher{w: w, a: a, source: "lines"}
	info, err := os.Stdin.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice != 0 {
		return p
	}
	lines := make(chan string)
	go func() { // ends with the input, or with the process
		defer close(lines)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- in.Text()
		}
	}()
	p.wg.Go(func() {
		defer p.close()
		for {
			select {
			case <-ctx.Done():
				return
			case line, ok := <-lines:
				if !ok {
					return
				}
				p.publish(ctx, "stdin.line", struct {
					Line string `json:"line"`
					N    int    `json:"n"`
				}{line, p.n + 1})
				time.Sleep(linePause)
			}
		}
	})
	return p
}

func (p *publisher) wait() { p.wg.Wait() }

// publish sends one message. While the agent is down it waits for it; what was
// in flight then stays unacknowledged, and nobody promised anything about it.
func (p *publisher) publish(ctx context.Context, subject string, v any) {
	payload, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers and text
	}
	for p.conn == nil {
		if ctx.Err() != nil {
			return
		}
		if p.conn, err = client.Dial(ctx, p.a.Socket); err != nil {
			time.Sleep(50 * time.Millisecond)
		}
	}
	p.n++
	m := testenv.Published{Device: p.a.Device, Source: p.source, N: p.n, Subject: subject, Lane: wire.Normal, Payload: payload}
	p.w.History.Sent(m)
	p.flight = append(p.flight, sent{m, p.conn.PublishAsync(client.Message{Subject: subject, Payload: payload})})
	if len(p.flight) >= inFlight {
		p.settle(inFlight / 2)
	}
}

// settle waits for the receipts of the k oldest.
func (p *publisher) settle(k int) {
	for _, f := range p.flight[:k] {
		r, err := f.pending.Wait(context.Background())
		if err != nil {
			p.conn.Close()
			p.conn, p.flight = nil, nil
			return
		}
		p.w.History.Acked(f.p, testenv.Receipt{Epoch: r.Epoch, Lane: string(r.Lane), Seq: r.Seq})
	}
	p.flight = append(p.flight[:0], p.flight[k:]...)
}

func (p *publisher) close() {
	p.settle(len(p.flight))
	if p.conn != nil {
		p.conn.Close()
	}
}
