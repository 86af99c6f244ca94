package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fieldpost/fieldpost/spool"
	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// fakeStore keeps messages in memory. It answers from a goroutine of its own,
// as the spool does, and copies what it takes only then.
type fakeStore struct {
	epoch wire.Epoch
	work  chan fakeAppend
	done  chan struct{}
	began time.Time
	clock atomic.Int64 // milliseconds that are added to what has passed

	mu        sync.Mutex
	err       error // of Err
	fail      error // of commits
	msgs      [wire.NumLanes][]wire.Message
	ids       map[string]spool.Receipt
	delivered [wire.NumLanes]uint64
	changed   chan struct{} // closed when delivered grows
	hold      chan struct{} // not nil: commits wait for it
	open      int           // appends without an answer
	closed    bool
	forget    bool   // keep nothing: for benchmarks
	count     uint64 // of what is forgotten
}

type fakeAppend struct {
	lane wire.Lane
	msgs []wire.Message
	done func(spool.Receipt, error)
}

func newFakeStore() *fakeStore {
	s := &fakeStore{
		epoch: wire.NewEpoch(), began: time.Now(), work: make(chan fakeAppend, 1<<16), done: make(chan struct{}),
		ids: map[string]spool.Receipt{}, changed: make(chan struct{}),
	}
	go s.loop()
	return s
}

func (s *fakeStore) loop() {
	defer close(s.done)
	for w := range s.work {
		s.mu.Lock()
		hold := s.hold
		s.mu.Unlock()
		if hold != nil {
			<-hold
		}
		w.done(s.commit(w))
		s.set(func() { s.open-- })
	}
}

func (s *fakeStore) commit(w fakeAppend) (spool.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return spool.Receipt{}, s.fail
	}
	rc := spool.Receipt{Flow: wire.Flow{Epoch: s.epoch, Lane: w.lane}}
	if s.forget {
		rc.Accepted, rc.First = len(w.msgs), s.count+1
		s.count += uint64(len(w.msgs))
		rc.Last = s.count
		return rc, nil
	}
	for _, m := range w.msgs {
		if first, ok := s.ids[m.ID]; ok && m.ID != "" {
			rc.Duplicates++
			rc.Copies = append(rc.Copies, spool.Copy{Flow: first.Flow, Seq: first.First})
			if rc.Accepted == 0 {
				rc.Flow, rc.First, rc.Last = first.Flow, first.First, first.Last
			}
			continue
		}
		m.Payload = append([]byte{}, m.Payload...)
		s.msgs[w.lane] = append(s.msgs[w.lane], m)
		rc.Last = uint64(len(s.msgs[w.lane]))
		if rc.Accepted++; rc.Accepted == 1 {
			rc.Flow.Lane, rc.First = w.lane, rc.Last
		}
		if m.ID != "" {
			s.ids[m.ID] = spool.Receipt{Flow: rc.Flow, First: rc.Last, Last: rc.Last}
		}
	}
	return rc, nil
}

func (s *fakeStore) Enqueue(lane wire.Lane, msgs []wire.Message, done func(spool.Receipt, error)) {
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.open++
		s.work <- fakeAppend{lane, msgs, done} // has room for all tests; Close waits for mu
	}
	s.mu.Unlock()
	if closed {
		done(spool.Receipt{}, spool.ErrClosed)
	}
}

func (s *fakeStore) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *fakeStore) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *fakeStore) deliver(lane wire.Lane, seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delivered[lane] = seq
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *fakeStore) Delivered(f wire.Flow, seq uint64) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Epoch != s.epoch || seq > uint64(len(s.msgs[f.Lane])) {
		return false, spool.ErrUnknown
	}
	return seq <= s.delivered[f.Lane], nil
}

func (s *fakeStore) WaitDelivered(ctx context.Context, f wire.Flow, seq uint64) error {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if ok, err := s.Delivered(f, seq); ok || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *fakeStore) Stats() spool.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := spool.Stats{DiskMax: 1 << 30, DiskFree: 1 << 31, Dropped: map[wire.Reason]uint64{}}
	for l, msgs := range s.msgs {
		if out.Lanes[l].Messages = uint64(len(msgs)) - s.delivered[l]; len(msgs) > 0 {
			out.Epoch = s.epoch
			out.Lanes[l].Oldest = time.Now()
		}
	}
	return out
}

func (s *fakeStore) Clock() int64 { return s.clock.Load() + time.Since(s.began).Milliseconds() }

func (s *fakeStore) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errors.New("closed twice")
	}
	s.closed = true
	open := s.open
	s.mu.Unlock()
	close(s.work)
	<-s.done
	if open > 1 { // one may be on its way back from done
		return fmt.Errorf("%w: %d appends", errClosedEarly, open)
	}
	return nil
}

var errClosedEarly = errors.New("closed before everything was answered")

// stored returns what is in a lane.
func (s *fakeStore) stored(lane wire.Lane) []wire.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.msgs[lane][:len(s.msgs[lane]):len(s.msgs[lane])]
}

// fakeUplink is down, with a reason.
type fakeUplink struct {
	mu    sync.Mutex
	reset int
	kicks int
}

func (u *fakeUplink) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (u *fakeUplink) Status() uplink.Status {
	return uplink.Status{LastError: "wrong_hub: another hub answers", History: []uplink.Transition{
		{At: time.Unix(1700000060, 0), Hub: "nats://h:4222", Reason: "cut"},
		{At: time.Unix(1700000000, 0), Up: true, Hub: "nats://h:4222"},
	}}
}
func (u *fakeUplink) Await()               {}
func (u *fakeUplink) Expect()              {}
func (u *fakeUplink) Tune(_ uplink.Tuning) {}
func (u *fakeUplink) Kick()                { u.mu.Lock(); u.kicks++; u.mu.Unlock() }
func (u *fakeUplink) Changed()             {}
func (u *fakeUplink) ResetHub() error {
	u.mu.Lock()
	u.reset++
	u.mu.Unlock()
	return nil
}
