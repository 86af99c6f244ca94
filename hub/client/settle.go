package client

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	ackTry    = 5 * time.Second // for one answer
	ackPause  = 250 * time.Millisecond
	endAck    = 5 * time.Second // for an answer after the call's end
	maxReason = 256             // bytes of a handler's error that the server is told
)

// defaultBackoff is how long a message waits after its first, second … failure.
func defaultBackoff() []time.Duration {
	return []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}
}

// errLater gives a message back as if it had not been handled: what failed was
// not the handler.
var errLater = errors.New("hub/client: not handled")

// laterPause is how long what was given back so stays away.
const laterPause = time.Second

// settle tells the server what became of a message.
func (p *puller) settle(ctx context.Context, h *held, err error) {
	switch {
	case err == nil:
		p.ack(ctx, h)
	case errors.Is(err, ErrTerminate):
		p.tell(h, func(m jetstream.Msg) error { return m.TermWithReason(reason(err)) })
	default:
		delay := p.delay(h.nth)
		switch {
		case ctx.Err() != nil:
			p.giveBack(h)
			return
		case h.nth == p.last: // at once, for DEAD
			delay = 0
		case errors.Is(err, errLater):
			delay = laterPause
		}
		p.tell(h, func(m jetstream.Msg) error { return m.NakWithDelay(delay) })
	}
}

// delay is the pause after the nth failure.
func (p *puller) delay(nth int) time.Duration {
	return p.backoff[min(max(nth, 1), len(p.backoff))-1]
}

// giveBack lets others have a message when this call ends: at once, but not before
// it has ceased to fetch, or the message would come back here.
func (p *puller) giveBack(h *held) {
	p.mu.Lock()
	wait := !p.idle
	if wait {
		p.back = append(p.back, h)
	}
	p.mu.Unlock()
	if !wait {
		p.tell(h, jetstream.Msg.Nak)
	}
}

// allBack gives back what waited for the end of fetching.
func (p *puller) allBack() {
	p.mu.Lock()
	back := p.back
	p.idle, p.back = true, nil
	p.mu.Unlock()
	for _, h := range back {
		p.tell(h, jetstream.Msg.Nak)
	}
}

// tell settles a message with a word that is not answered. If it does not
// arrive, the ack wait does the same, later.
func (p *puller) tell(h *held, say func(jetstream.Msg) error) {
	p.mu.Lock()
	// Under the lock, so that keepAlive says nothing after it.
	delete(p.held, h.seq)
	err := say(h.last)
	p.mu.Unlock()
	if err != nil {
		p.c.cfg.Log.Debug("a message comes again after its ack wait", "group", p.group, "stream_seq", h.seq, "error", err)
	}
	p.give(1)
}

// ack settles a message for good: it returns when the server has confirmed that,
// or when it would have handed the message to others meanwhile.
func (p *puller) ack(ctx context.Context, h *held) {
	until := time.Now().Add(p.ackWait)
	var err error
	for end := false; ; {
		p.mu.Lock()
		m := h.last
		p.mu.Unlock()
		try, cancel := context.WithTimeout(context.WithoutCancel(ctx), ackTry)
		err = m.DoubleAck(try)
		cancel()
		if err == nil || errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
			err = nil
			break
		}
		if !end && ctx.Err() != nil {
			end = true
			if e := time.Now().Add(endAck); e.Before(until) {
				until = e
			}
		}
		if time.Now().After(until) {
			break
		}
		time.Sleep(ackPause)
	}
	p.mu.Lock()
	delete(p.held, h.seq)
	p.mu.Unlock()
	if err != nil {
		p.c.cfg.Log.Warn("an ack is not confirmed; the message may come again", "group", p.group, "stream_seq", h.seq, "error", err)
	}
	p.give(1)
}

// reason is an error as a server takes it: short, on one line, and without what it
// is wrapped in to end the message.
func reason(err error) string {
	own := strings.NewReplacer(": "+ErrTerminate.Error(), "", ErrTerminate.Error()+": ", "", ErrTerminate.Error()+"\n", "").Replace(err.Error())
	s := strings.ToValidUTF8(strings.Join(strings.Fields(own), " "), "")
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "")
	}
	return s
}

// keepAlive tells the server of everything held that it is being worked on, so
// that a handler may take as long as it needs.
func (p *puller) keepAlive(over <-chan struct{}) {
	tick := time.NewTicker(p.ackWait / 3)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
		}
		p.mu.Lock()
		for _, h := range p.held {
			if err := h.last.InProgress(); err != nil && !errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
				break // no connection: none of the others goes out either
			}
		}
		p.mu.Unlock()
	}
}
