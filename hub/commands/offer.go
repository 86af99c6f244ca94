package commands

import (
	"context"
	"errors"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	maxLooked = 256 // messages that one request looks at
	// What a reply takes beside its commands (ids that are noted or cancelled), and
	// a command beside its payload.
	replyRoom   = 16 << 10
	commandRoom = 1 << 10
)

// offer adds the commands that the device is to have. It is noted of each that
// the device may have it before that is so.
func (c *Commands) offer(ctx context.Context, device string, req *wire.CommandRequest, reply *wire.CommandReply) error {
	for try := 0; ; try++ {
		o, err := c.choose(ctx, device, req, reply.Desired)
		if err == nil {
			err = c.note(ctx, o.fresh)
		}
		if err == nil {
			reply.Stream, reply.Commands, reply.Next, reply.More = o.stream, o.commands, o.next, o.more
			return nil
		}
		if !again(try, err) {
			return err
		}
	}
}

// offering is what one reply offers.
type offering struct {
	stream   string
	commands []wire.Command
	next     uint64
	more     bool
	fresh    []*record // never offered before
	room     int       // bytes of payloads
	space    int       // bytes of the reply
	// heard says that what the request names and reports is all that the device
	// has: a command behind After that is not in told is not there.
	heard bool
	told  map[string]bool // ids that the request reports
}

// saysAll reports whether the request had room for everything that the device has
// to report.
func saysAll(req *wire.CommandRequest) bool {
	results := 0
	for _, p := range req.Reports {
		results += len(p.Result)
	}
	return len(req.Reports) < wire.MaxCommandReports && results < wire.MaxCommandMessage/4
}

// choose reads the device's next commands, which share the reply with desired
// settings, and settles those that are over.
func (c *Commands) choose(ctx context.Context, device string, req *wire.CommandRequest, beside *wire.Desired) (*offering, error) {
	info, err := c.stream(ctx, false)
	if err == nil && req.Stream == info.Incarnation && req.After > info.Last {
		info, err = c.stream(ctx, true)
	}
	if err != nil {
		return nil, err
	}
	o := &offering{stream: info.Incarnation, room: req.Room, told: map[string]bool{}, space: min(wire.MaxCommandMessage, c.cfg.Store.MaxPayload()) - replyRoom}
	if beside != nil {
		o.space -= len(beside.Document)
	}
	if req.Stream == info.Incarnation && req.After <= info.Last { // else the stream is another, or an older one was restored
		o.next, o.heard = req.After, saysAll(req)
	}
	for _, p := range req.Reports {
		o.told[p.ID] = true
	}
	for range maxLooked {
		m, err := c.cfg.Store.Next(ctx, store.Commands, wire.CommandSubject(device), o.next+1)
		if errors.Is(err, store.ErrNotFound) {
			return o, nil
		}
		if err != nil {
			return nil, err
		}
		cmd, err := parse(m, info.Incarnation)
		if err != nil {
			c.cfg.Log.Warn("a message in COMMANDS is passed over", "err", err)
			o.next = m.Seq
			continue
		}
		if took, err := c.look(ctx, o, cmd); err != nil || !took {
			return o, err
		}
		o.next = m.Seq
	}
	o.more = true
	return o, nil
}

// look takes a command into the offering, or settles it; false if it has to wait
// for another reply.
func (c *Commands) look(ctx context.Context, o *offering, cmd *command) (took bool, err error) {
	r, err := c.record(ctx, cmd.Device, cmd.ID)
	if errors.Is(err, store.ErrNotFound) {
		r, err = cmd.record, nil
	}
	if err != nil {
		return false, err
	}
	now := c.cfg.Now()
	over := now.UnixMilli() >= r.Expires
	switch {
	case r.State.Settled():
		return true, c.clear(ctx, &r, cmd)
	case over || r.Cancelling:
		if r.away() && (!o.heard || o.told[cmd.ID]) {
			return true, nil // the device says by itself what becomes of it, or that it does not have it
		}
		to, why := wire.CommandExpired, "the device did not ask for it in time"
		if r.Cancelling {
			to, why = wire.CommandCancelled, ""
		}
		r, err := c.change(ctx, r, func(r *record) bool { return r.settle(to, why, now) })
		if err != nil {
			return false, err
		}
		return true, c.clear(ctx, &r, cmd)
	}
	size := (len(cmd.payload)+2)/3*4 + commandRoom
	switch {
	case len(cmd.payload) > o.room: // it asks again when it has room
		return false, nil
	case len(o.commands) == wire.MaxCommandBatch || size > o.space:
		o.more = true
		return false, nil
	}
	o.room -= len(cmd.payload)
	o.space -= size
	o.commands = append(o.commands, wire.Command{
		ID: cmd.ID, Seq: cmd.Seq, Subject: cmd.Subject, Payload: cmd.payload, Sent: r.Sent, TTL: r.Expires - now.UnixMilli(),
		AckWait: cmd.ackWait.Milliseconds(), MaxDeliver: cmd.maxDeliver,
	})
	if !r.away() {
		r.Offered = now.UnixMilli()
		o.fresh = append(o.fresh, &r)
	}
	return true, nil
}

// note writes that commands are handed out now.
func (c *Commands) note(ctx context.Context, fresh []*record) error {
	if len(fresh) == 0 {
		return nil
	}
	if err := c.fault("offer"); err != nil {
		return err
	}
	entries := make([]entry, len(fresh))
	for i, r := range fresh {
		entries[i] = r.entry()
	}
	if err := c.put(ctx, entries...); err != nil {
		return err
	}
	return c.fault("offered")
}
