package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	backoffBase = 1_000 // milliseconds
	backoffCap  = 60_000
)

// Subscriber takes commands whose subject matches its filter.
type Subscriber struct {
	s      *Store
	filter string
	max    int
	wake   chan struct{} // capacity 1
	leased int           // guarded by the store's mu
}

// Delivery is a command that is leased to a subscriber.
type Delivery struct {
	ID         string
	Subject    string
	Payload    []byte
	Deliveries int // this one included
	Sent       time.Time
	Expires    time.Time
}

// Subscribe begins a subscription; at most max commands are leased to it at a
// time, 1 to MaxAtOnce. The filter has been checked.
func (s *Store) Subscribe(filter string, max int) (*Subscriber, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.subs) == maxSubscribers {
		return nil, fmt.Errorf("%w: %d", ErrMany, maxSubscribers)
	}
	u := &Subscriber{s: s, filter: filter, max: max, wake: make(chan struct{}, 1)}
	s.subs = append(s.subs, u)
	return u, nil
}

// Close ends the subscription: what is leased to it is handed out again.
func (u *Subscriber) Close() {
	s := u.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subs = slices.DeleteFunc(s.subs, func(o *Subscriber) bool { return o == u })
	now := s.now()
	for _, e := range s.book.order {
		if e.by == u {
			s.leave(e, now, "the subscriber went away")
		}
	}
	s.stir()
}

// Next waits for a command. It is leased when Next returns, for ack_wait.
func (u *Subscriber) Next(ctx context.Context) (Delivery, error) {
	for {
		d, ok := u.s.lend(u)
		if ok {
			return d, nil
		}
		select {
		case <-u.wake:
		case <-ctx.Done():
			return Delivery{}, ctx.Err()
		}
	}
}

// lend leases the first command that u may have.
func (s *Store) lend(u *Subscriber) (Delivery, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready() != nil || u.leased >= u.max {
		return Delivery{}, false
	}
	now := s.now()
	for _, e := range s.ahead(now) {
		if !wire.MatchFilter(u.filter, e.subject) {
			continue
		}
		payload, err := s.log.read(e.at)
		if err != nil {
			if s.end(e, wire.CommandFailed, "its payload was damaged on the disk of the device") != nil {
				return Delivery{}, false
			}
			continue
		}
		if s.commit(&record{kind: kindLent, head: head{ID: e.id, Deliveries: e.deliveries + 1}}) != nil {
			return Delivery{}, false // tried again when the disk is
		}
		e.by, e.leaseEnd = u, e.lent+e.ackWait
		u.leased++
		wake(s.change)
		return Delivery{
			ID: e.id, Subject: e.subject, Payload: payload.data, Deliveries: e.deliveries,
			Sent: time.UnixMilli(e.sent), Expires: s.cfg.Now().Add(time.Duration(e.ends-now) * time.Millisecond),
		}, true
	}
	return Delivery{}, false
}

// ahead are the commands that can be handed out, in order. One that is not
// settled holds back all later ones of its subject.
func (s *Store) ahead(now int64) (out []*entry) {
	busy := map[string]bool{}
	for _, e := range s.book.order {
		if e.settled() || busy[e.subject] {
			continue
		}
		busy[e.subject] = true
		if e.lent == 0 && e.retry <= now && e.ends > now {
			out = append(out, e)
		}
	}
	return out
}

// Ack settles a command: a program has done it. Like Nak and Term it returns
// when that is durable, and can be repeated.
func (s *Store) Ack(id string, result []byte) error {
	return s.settle(id, wire.CommandAcked, func(e *entry, r *record) {
		if r.data = result; s.book.results+len(result) > maxResults {
			r.data, r.Reason = nil, fmt.Sprintf("the result was not kept: more than %d bytes of results wait for the hub", maxResults)
		}
	})
}

// Term settles a command as failed: it cannot be done.
func (s *Store) Term(id, reason string) error {
	return s.settle(id, wire.CommandFailed, func(e *entry, r *record) {
		if r.Reason = clean(reason); reason == "" {
			r.Reason = "terminated by a program"
		}
	})
}

func (s *Store) settle(id string, state wire.CommandState, fill func(e *entry, r *record)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, known, err := s.find(id)
	switch {
	case err != nil:
		return err
	case known == state:
		return nil
	case known != "":
		return &SettledError{known}
	}
	r := s.final(e, state, "")
	fill(e, r)
	return s.finish(e, r)
}

// find returns a command that is not settled, or what state it has.
func (s *Store) find(id string) (*entry, wire.CommandState, error) {
	if !s.loaded {
		if err := s.ready(); err != nil {
			return nil, "", err
		}
	}
	e := s.book.entries[id]
	switch {
	case e == nil:
		state, ok := s.book.memory.state(id)
		if !ok {
			return nil, "", ErrUnknown
		}
		return nil, state, nil
	case e.settled():
		return nil, e.state, nil
	}
	return e, "", nil
}

// Nak gives a command back: it is handed out again after a backoff, unless that
// was the last time.
func (s *Store) Nak(id, reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, known, err := s.find(id)
	switch {
	case err != nil:
		return err
	case known == wire.CommandAcked:
		return &SettledError{known}
	case known != "" || e.lent == 0:
		return nil // it was given back before
	}
	if reason == "" {
		reason = "a program gave it back"
	}
	if state, why := s.verdict(e, s.now(), reason); state != "" {
		return s.end(e, state, why)
	}
	u := e.by
	if err := s.commit(&record{kind: kindReturned, head: head{ID: id, Reason: clean(reason)}}); err != nil {
		return err
	}
	s.release(e, u)
	s.stir()
	return nil
}

// verdict is what becomes of a command when its lease ends without an ack; ""
// if it is handed out again.
func (s *Store) verdict(e *entry, now int64, reason string) (wire.CommandState, string) {
	switch {
	case e.cancel:
		return wire.CommandCancelled, "cancelled by its sender; before: " + reason
	case e.ends <= now:
		return wire.CommandExpired, "its time to live was over; before: " + reason
	case e.deliveries >= e.maxDeliver:
		return wire.CommandFailed, fmt.Sprintf("handed out %d times, max_deliver; the last: %s", e.deliveries, reason)
	}
	return "", ""
}

// leave ends a lease whose program went away. The last one is kept: nobody else
// gets the command, and the program may still answer.
func (s *Store) leave(e *entry, now int64, reason string) {
	u := e.by
	if state, _ := s.verdict(e, now, reason); state != "" {
		if e.by = nil; u != nil {
			u.leased--
		}
		return
	}
	s.cfg.Counted(returned)
	e.lent, e.reason = 0, reason
	s.release(e, u)
}

// release puts off the next delivery of a command that has come back.
func (s *Store) release(e *entry, u *Subscriber) {
	e.by, e.leaseEnd = nil, 0
	if u != nil {
		u.leased--
	}
	most := float64(min(backoffCap, backoffBase<<min(max(0, e.deliveries-1), 6)))
	e.retry = s.now() + int64(s.cfg.Rand()*most)
	wake(s.change)
}

// end settles e on the store's own account.
func (s *Store) end(e *entry, state wire.CommandState, reason string) error {
	return s.finish(e, s.final(e, state, reason))
}

func (s *Store) finish(e *entry, r *record) error {
	u := e.by
	if err := s.commit(r); err != nil {
		return err
	}
	if u != nil {
		u.leased--
	}
	wake(s.updates)
	s.stir()
	return nil
}

// stir looks again: who waits may get something, the hub may have more for us.
func (s *Store) stir() {
	for _, u := range s.subs {
		wake(u.wake)
	}
	if s.short && maxHeld-s.book.held >= maxAsked {
		s.short = false
		wake(s.updates)
	}
	wake(s.change)
}

// resume takes up what the last run has left: nobody it was leased to is
// connected any more.
func (s *Store) resume() {
	now := s.now()
	for _, e := range s.book.order {
		if e.lent != 0 {
			e.leaseEnd = e.lent + e.ackWait
			s.leave(e, now, "the agent was restarted")
		}
	}
	wake(s.updates)
	s.stir()
}

// maxNap bounds the wait for a deadline: a timer stands still while the host is
// suspended, time to live does not.
const maxNap = 30 * time.Second

// Run ends leases and expires commands until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-s.change:
		}
		if next := s.sweep(); next >= 0 {
			timer.Reset(next)
		} else {
			timer.Stop()
		}
	}
}

// sweep does what is due, and returns after how long to look again; negative:
// when something has changed.
func (s *Store) sweep() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready() != nil {
		if errors.Is(s.failed, errClosed) {
			return -1
		}
		return pause
	}
	now, next := s.now(), int64(-1)
	due := func(at int64) bool {
		if at > now && (next < 0 || at-now < next) {
			next = at - now
		}
		return at <= now
	}
	woken := false
	for _, e := range slices.Clone(s.book.order) {
		var err error
		switch {
		case e.settled():
		case e.lent != 0 && due(e.leaseEnd):
			err = s.overdue(e, now)
			woken = true
			due(e.retry)
		case e.lent != 0:
		case due(e.ends):
			err = s.end(e, wire.CommandExpired, "its time to live was over")
		case e.retry > 0 && due(e.retry):
			e.retry, woken = 0, true
		}
		if err != nil {
			return pause
		}
	}
	if woken {
		for _, u := range s.subs {
			wake(u.wake)
		}
	}
	if next < 0 {
		return -1
	}
	return min(time.Duration(next)*time.Millisecond, maxNap)
}

// overdue ends a lease that was not answered in time.
func (s *Store) overdue(e *entry, now int64) error {
	const reason = "not acked within ack_wait"
	if state, why := s.verdict(e, now, reason); state != "" {
		return s.end(e, state, why)
	}
	s.cfg.Counted(returned)
	u := e.by
	e.lent, e.reason = 0, reason
	s.release(e, u)
	return nil
}
