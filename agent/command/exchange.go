package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Updates receives a value when the hub is to be told something: a report
// waits, or there is room again.
func (s *Store) Updates() <-chan struct{} { return s.updates }

// maxAsked is how many bytes of payloads are asked for at a time: on a slow
// link an answer must not hold up the acks of the session for long. It is no
// less than the largest command.
const maxAsked = wire.MaxCommand

// Ask is what to say to the hub, in a message of at most limit bytes: HubID is
// left out.
func (s *Store) Ask(limit int) wire.CommandRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.book
	room := max(0, maxHeld-b.held)
	if s.ready() != nil {
		room = 0
	}
	s.short = room < maxAsked
	req := wire.CommandRequest{Stream: b.stream, After: b.after, Room: min(room, maxAsked)}
	if limit <= 0 || limit > wire.MaxCommandMessage {
		limit = wire.MaxCommandMessage
	}
	whole := limit - 1<<10 // less the request beside its reports
	left := whole
	for _, e := range b.order {
		if len(req.Reports) == wire.MaxCommandReports {
			break
		}
		if e.noted {
			continue
		}
		r, size := s.report(e, whole)
		if size > left && len(req.Reports) > 0 {
			break
		}
		left -= size
		req.Reports = append(req.Reports, r)
	}
	return req
}

// report is what the hub is told of e, and at most how many bytes that takes. A
// result that is beyond the limit is left out.
func (s *Store) report(e *entry, limit int) (r wire.CommandReport, size int) {
	r = wire.CommandReport{ID: e.id, State: e.state, At: max(0, e.since), Deliveries: e.deliveries}
	const around = 2 << 10 // ids, numbers, and a reason of which every byte is escaped
	if !e.settled() {
		return r, around
	}
	r.Reason = e.reason
	if e.at.data == 0 {
		return r, around
	}
	size = around + (e.at.data+2)/3*4
	if size > limit {
		r.Reason = clean(strings.TrimSpace(fmt.Sprintf("a result of %d bytes does not fit in a message of this link; %s", e.at.data, e.reason)))
		return r, around
	}
	got, err := s.log.read(e.at)
	if err != nil {
		r.Reason = clean(fmt.Sprintf("the result cannot be read on the device: %v", err))
		return r, around
	}
	r.Result = got.data
	return r, size
}

// Take acts on the hub's answer: when it returns nil, all of it is durable. all
// is false when there was no room for some commands.
func (s *Store) Take(asked wire.CommandRequest, r *wire.CommandReply) (all bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(); err != nil {
		return false, err
	}
	records := s.noted(asked, r.Noted)
	s.retell = len(records) > 0 // of some that had no room in the request
	records, all = s.taken(records, r)
	records = s.cancelled(records, r.Cancel)
	if err := s.commit(records...); err != nil {
		return false, err
	}
	s.retell = s.retell || slices.ContainsFunc(records, func(r *record) bool { return r.kind == kindTaken || r.kind == kindSettled })
	if s.retell && slices.ContainsFunc(s.book.order, func(e *entry) bool { return !e.noted }) {
		wake(s.updates)
	}
	s.stir()
	return all, nil
}

// noted are the records that the hub knows of what it was told: of another
// state than it was told, it does not.
func (s *Store) noted(asked wire.CommandRequest, ids []string) (out []*record) {
	for _, p := range asked.Reports {
		e := s.book.entries[p.ID]
		if e != nil && !e.noted && e.state == p.State && slices.Contains(ids, p.ID) {
			out = append(out, &record{kind: kindNoted, head: head{ID: p.ID, State: p.State}})
		}
	}
	return out
}

// taken adds the commands that are new, and where to go on.
func (s *Store) taken(out []*record, r *wire.CommandReply) ([]*record, bool) {
	b := s.book
	after, room := r.Next, maxHeld-b.held
	now := s.now()
	fresh := map[string]bool{}
	for i, c := range r.Commands {
		if fresh[c.ID] || b.entries[c.ID] != nil {
			if e := b.entries[c.ID]; e != nil {
				e.noted, s.retell = false, true // the hub knows less than we do
			}
			continue
		}
		if state, ok := b.memory.state(c.ID); ok {
			out = append(out, s.again(c.ID, state, now+c.TTL))
			fresh[c.ID] = true
			continue
		}
		if room -= overhead + len(c.Payload); room < 0 {
			if after = b.after; i > 0 {
				after = r.Commands[i-1].Seq
			} else if b.stream != r.Stream {
				after = 0
			}
			s.short = true
			out = s.cursor(out, r.Stream, after)
			return out, false
		}
		fresh[c.ID] = true
		out = append(out, &record{kind: kindTaken, data: c.Payload, head: head{
			ID: c.ID, Subject: c.Subject, Sent: c.Sent, Ends: now + c.TTL, AckWait: c.AckWait, MaxDeliver: c.MaxDeliver,
			At: s.cfg.Now().UnixMilli(),
		}})
	}
	return s.cursor(out, r.Stream, after), true
}

func (s *Store) cursor(out []*record, stream string, after uint64) []*record {
	if stream == s.book.stream && after == s.book.after {
		return out
	}
	return append(out, &record{kind: kindCursor, head: head{Stream: stream, After: after}})
}

// again reports the state of a command that is remembered only.
func (s *Store) again(id string, state wire.CommandState, ends int64) *record {
	return &record{kind: kindSettled, head: head{ID: id, State: state, At: s.cfg.Now().UnixMilli(), Ends: ends, Reason: "settled before"}}
}

// cancelled adds what becomes of commands that the sender takes back.
func (s *Store) cancelled(out []*record, ids []string) []*record {
	const reason = "cancelled by its sender"
	for _, id := range ids {
		e := s.book.entries[id]
		state, known := s.book.memory.state(id)
		switch {
		case slices.ContainsFunc(out, func(r *record) bool { return r.ID == id && r.kind == kindTaken }):
			out = append(out, s.final(&entry{id: id}, wire.CommandCancelled, reason))
		case e == nil && known:
			out = append(out, s.again(id, state, 0))
		case e == nil: // it may be on its way
			out = append(out, s.final(&entry{id: id}, wire.CommandCancelled, "cancelled; it was not on the device"))
		case e.settled():
			e.noted, s.retell = false, true
		case e.lent != 0:
			if !e.cancel {
				out = append(out, &record{kind: kindCancel, head: head{ID: id}})
			}
		default:
			out = append(out, s.final(e, wire.CommandCancelled, reason))
		}
	}
	return out
}
