package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	requestQueue = "fieldpost-commands" // of the instances
	workers      = 32                   // requests that are worked on at the same time
	requestFor   = 15 * time.Second     // after which one is given up
	requestBurst = 100                  // of one device at once
	requestRate  = 20.0                 // of one device, a second
	maxAsking    = 10_000               // devices of which is known how much they asked
)

// asking is what one device asks for.
type asking struct {
	busy   bool
	tokens float64
	refill time.Time
}

// Run answers devices and lets commands expire until ctx ends; it returns nil
// then. It can be called again.
func (c *Commands) Run(ctx context.Context) error {
	if err := c.fault("listen"); err != nil {
		return err
	}
	var work sync.WaitGroup
	var mu sync.Mutex
	stopped := false // guarded by mu: nothing is added to work any more
	places := make(chan struct{}, workers)
	sub, err := c.cfg.Conn.QueueSubscribe("fp.up.*", requestQueue, func(m *nats.Msg) {
		if m.Reply == "" {
			return // a heartbeat
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if stopped { // the device asks again
			return
		}
		work.Go(func() {
			defer func() { <-places }()
			c.serve(ctx, m)
		})
	})
	if err == nil {
		err = c.cfg.Conn.Flush()
	}
	if err != nil {
		return fmt.Errorf("commands: requests: %w", err)
	}
	select {
	case <-c.listening:
	default:
		close(c.listening)
	}
	c.sweepLoop(ctx)
	if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		c.cfg.Log.Warn("requests for commands still come", "err", err)
	}
	mu.Lock()
	stopped = true
	mu.Unlock()
	work.Wait()
	return nil
}

// serve answers one request.
func (c *Commands) serve(ctx context.Context, m *nats.Msg) {
	device := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	if wire.CheckDevice(device) != nil || !strings.HasPrefix(m.Reply, wire.InboxPrefix(device)+".") {
		c.cfg.Rejected("bad_reply")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestFor)
	defer cancel()
	reply := c.answer(ctx, device, m.Data)
	if reply.Error != nil {
		c.cfg.Rejected("command_" + reply.Error.Code)
		reply = wire.CommandReply{Error: reply.Error}
	}
	reply.Time = c.cfg.Now().UnixMilli()
	var data bytes.Buffer
	enc := json.NewEncoder(&data)
	enc.SetEscapeHTML(false) // desired settings are shown to people as they come
	err := enc.Encode(reply)
	if err == nil {
		err = c.cfg.Conn.Publish(m.Reply, data.Bytes())
	}
	if err != nil {
		c.cfg.Log.Debug("a request for commands is not answered", "device", device, "err", err)
	}
}

// answer takes in what the device reports and finds what it is to have.
func (c *Commands) answer(ctx context.Context, device string, data []byte) (reply wire.CommandReply) {
	fail := func(code, format string, args ...any) wire.CommandReply {
		detail := fmt.Sprintf(format, args...)
		return wire.CommandReply{Error: &wire.SessionError{Code: code, Detail: strings.ToValidUTF8(detail[:min(len(detail), 300)], "")}}
	}
	if why := c.enter(device); why != "" {
		return fail(wire.CodeRefused, "%s", why)
	}
	defer c.leave(device)
	req, err := wire.ParseCommandRequest(data)
	switch {
	case err != nil:
		return fail(wire.CodeProtocol, "%s", strings.ToValidUTF8(err.Error(), "?"))
	case req.HubID != c.cfg.HubID:
		return fail(wire.CodeWrongHub, "this is hub %s", c.cfg.HubID)
	}
	reply.Noted, err = c.apply(ctx, device, req.Reports)
	if err == nil && req.Desired != nil && c.cfg.Desired != nil {
		reply.Desired, err = c.cfg.Desired.Answer(ctx, device, req.Desired)
	}
	if err == nil {
		err = c.offer(ctx, device, req, &reply)
	}
	if err == nil {
		reply.Cancel, err = c.toCancel(ctx, device)
	}
	if err != nil {
		if ctx.Err() == nil && !store.Passing(err) {
			c.cfg.Log.Warn("a request for commands cannot be answered now", "device", device, "err", err)
		}
		return fail(wire.CodeUnavailable, "the hub cannot read or write commands now; ask again")
	}
	return reply
}

// enter takes the device's one place; it says why there is none.
func (c *Commands) enter(device string) (why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now() // a rate, not a time that anybody sees
	a := c.asking[device]
	if a == nil {
		if len(c.asking) >= maxAsking {
			c.forgetIdle(now)
		}
		a = &asking{tokens: requestBurst, refill: now}
		c.asking[device] = a
	}
	a.tokens = min(requestBurst, a.tokens+now.Sub(a.refill).Seconds()*requestRate)
	a.refill = now
	switch {
	case a.busy:
		return "a request of this device is being answered; ask when it is"
	case a.tokens < 1:
		return fmt.Sprintf("this device asks more often than %g times a second; wait", requestRate)
	}
	a.tokens--
	a.busy = true
	return ""
}

func (c *Commands) leave(device string) {
	c.mu.Lock()
	c.asking[device].busy = false
	c.mu.Unlock()
}

// forgetIdle forgets devices that may ask as much as one that never has; c.mu is
// held. A device that is busy stays.
func (c *Commands) forgetIdle(now time.Time) {
	for device, a := range c.asking {
		if !a.busy && a.tokens+now.Sub(a.refill).Seconds()*requestRate >= requestBurst {
			delete(c.asking, device)
		}
	}
}
