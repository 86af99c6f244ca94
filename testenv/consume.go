package testenv

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Settle waits until the agents are drained and everything promised is in the
// stream (or reported gone), then reads the streams and checks the run.
func (w *World) Settle(limit time.Duration) Counts {
	w.TB.Helper()
	w.Drain(limit)
	var c Counts
	Eventually(w.TB, limit, "the history holds", func() (err error) {
		if err = w.readStreams(); err == nil {
			c, err = w.History.Check()
		}
		return err
	})
	return c
}

// jetStream connects to the hub's streams as a back end does, until closes is called.
func (w *World) jetStream() (js jetstream.JetStream, closes func(), err error) {
	nc, err := nats.Connect("nats://"+strings.Join(append([]string{w.NATS}, w.Servers...), ",nats://"), nats.MaxReconnects(-1))
	if err != nil {
		return nil, nil, err
	}
	if js, err = jetstream.New(nc); err != nil {
		nc.Close()
		return nil, nil, err
	}
	return js, nc.Close, nil
}

// readStreams replaces what the history knows of EDGE and DEAD.
func (w *World) readStreams() error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	js, closes, err := w.jetStream()
	if err != nil {
		return err
	}
	defer closes()
	w.History.forget()
	var parts parts
	err = eachMessage(ctx, js, "EDGE", "", func(m jetstream.Msg, seq uint64) error {
		s, err := storedOf(m, seq)
		if err != nil {
			return err
		}
		whole, err := parts.add(&s)
		if whole {
			w.History.Stored(s)
		}
		return err
	})
	if err == nil && parts.of > 0 {
		err = fmt.Errorf("EDGE ends with part %d of %d", parts.n, parts.of)
	}
	if err != nil {
		return err
	}
	return eachMessage(ctx, js, "DEAD", "dead.gap.>", func(m jetstream.Msg, _ uint64) error {
		g, err := gapOf(m)
		if err == nil {
			w.History.Gap(g)
		}
		return err
	})
}

// parts puts messages together that a stream holds in parts.
type parts struct {
	n, of   int // of the message that is being put together; of is 0 if none is
	receipt Receipt
	payload []byte
}

// add takes in what a stream holds next; if s is whole now, it has all of the payload.
func (p *parts) add(s *Stored) (whole bool, err error) {
	v := s.Headers["Fieldpost-Part"]
	if v == nil {
		if p.of > 0 {
			return false, fmt.Errorf("EDGE %d: a message after part %d of %d", s.StreamSeq, p.n, p.of)
		}
		return true, nil
	}
	var n, of int
	if _, err := fmt.Sscanf(v[0], "%d/%d", &n, &of); err != nil {
		return false, fmt.Errorf("EDGE %d: part %q: %w", s.StreamSeq, v, err)
	}
	if p.of == 0 {
		p.of, p.receipt = of, s.Receipt
	}
	if n != p.n+1 || of != p.of || s.Receipt != p.receipt {
		return false, fmt.Errorf("EDGE %d: part %d of %d of %v after part %d of %d of %v", s.StreamSeq, n, of, s.Receipt, p.n, p.of, p.receipt)
	}
	p.n, p.payload = n, append(p.payload, s.Payload...)
	if n < of {
		return false, nil
	}
	s.Payload = p.payload
	*p = parts{}
	return true, nil
}

// edgeHolds is nil if EDGE has at least n messages.
func (w *World) edgeHolds(n uint64) error {
	js, closes, err := w.jetStream()
	if err != nil {
		return err
	}
	defer closes()
	s, err := js.Stream(context.Background(), "EDGE")
	if err != nil {
		return err
	}
	if got := s.CachedInfo().State.Msgs; got < n {
		return fmt.Errorf("%d of %d", got, n)
	}
	return nil
}

// forget drops what was read from the streams.
func (h *History) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stored, h.gaps = nil, nil
}

// eachMessage reads a stream from its first to its present last message.
func eachMessage(ctx context.Context, js jetstream.JetStream, stream, filter string, f func(jetstream.Msg, uint64) error) error {
	cfg := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy}
	if filter != "" {
		cfg.FilterSubjects = []string{filter}
	}
	cons, err := js.OrderedConsumer(ctx, stream, cfg)
	if err != nil {
		return err
	}
	info, err := cons.Info(ctx)
	if err != nil {
		return err
	}
	left := info.NumPending
	if left == 0 {
		return nil
	}
	// Not by Fetch: each makes the consumer anew, which in a cluster is a decision
	// of all servers.
	it, err := cons.Messages(jetstream.PullMaxMessages(1000))
	if err != nil {
		return err
	}
	defer it.Stop()
	for left > 0 {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("%s: %d messages left, then: %w", stream, left, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if err := f(m, meta.Sequence.Stream); err != nil {
			return err
		}
		left = min(left-1, meta.NumPending)
	}
	return nil
}

func storedOf(m jetstream.Msg, streamSeq uint64) (Stored, error) {
	parts := strings.SplitN(m.Subject(), ".", 3)
	h := m.Headers()
	seq, err := strconv.ParseUint(h.Get("Fieldpost-Seq"), 10, 64)
	if err != nil || len(parts) != 3 {
		return Stored{}, fmt.Errorf("EDGE %d: subject %q, headers %v: %v", streamSeq, m.Subject(), h, err)
	}
	lane := h.Get("Fieldpost-Lane")
	if lane == "" {
		lane = "normal"
	}
	return Stored{Device: parts[1], Subject: parts[2], Receipt: Receipt{h.Get("Fieldpost-Epoch"), lane, seq},
		Headers: h, Payload: m.Data(), StreamSeq: streamSeq}, nil
}

func gapOf(m jetstream.Msg) (Gap, error) {
	text := m.Headers().Get("Fieldpost-Gap")
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return Gap{}, fmt.Errorf("gap %q is not epoch/lane/first-last", text)
	}
	g := Gap{Device: strings.TrimPrefix(m.Subject(), "dead.gap."), Epoch: parts[0], Lane: parts[1], Reason: m.Headers().Get("Fieldpost-Reason")}
	_, err := fmt.Sscanf(parts[2], "%d-%d", &g.First, &g.Last)
	return g, err
}
