package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	readBatch   = 256     // messages of one request; the server answers 1024 at most
	readBytes   = 1 << 20 // after which the server ends an answer early
	readAhead   = 2 << 20 // bytes waiting for Next beyond which no request is sent
	pollEvery   = 250 * time.Millisecond
	readTimeout = 5 * time.Second
)

// Reader reads the ledger, or another stream that only the hub writes, in order.
// It reads ahead, and from any replica: one that lags only shows less. It is not
// safe for concurrent use.
type Reader struct {
	s      *Store
	stream string
	filter string // on subjects; empty: all
	sub    *nats.Subscription
	prefix string
	news   chan struct{} // filled when the stream has taken something

	mu     sync.Mutex
	next   uint64        // first sequence not yet received; guarded by mu
	req    uint64        // number of the request in flight, or of the last; guarded by mu
	open   bool          // a request is in flight; guarded by mu
	queue  []Stored      // received, not yet handed out; guarded by mu
	bytes  int           // of queue; guarded by mu
	atEnd  bool          // the last answer found nothing; guarded by mu
	err    error         // guarded by mu
	signal chan struct{} // something changed
}

// Reader starts reading at the first message whose sequence is from or higher.
func (s *Store) Reader(stream string, from uint64) (*Reader, error) {
	return s.FilteredReader(stream, "", from)
}

// FilteredReader is a Reader of the messages whose subject the filter takes.
func (s *Store) FilteredReader(stream, filter string, from uint64) (*Reader, error) {
	r := &Reader{s: s, stream: stream, filter: filter, next: max(from, 1), prefix: s.read.NewRespInbox() + ".", signal: make(chan struct{}, 1)}
	sub, err := s.read.Subscribe(r.prefix+"*", r.take)
	if err != nil {
		return nil, fmt.Errorf("store: reader of %s: %w", stream, err)
	}
	r.sub, r.news = sub, s.news.register(stream)
	return r, nil
}

// Close ends the reader.
func (r *Reader) Close() {
	r.s.news.forget(r.news)
	r.sub.Unsubscribe() // fails only on a closed connection
}

// Next returns the next message, or ErrNotFound when the last answer of the
// server held no more: Wait, then ask again.
func (r *Reader) Next(ctx context.Context) (Stored, error) {
	if m, ok, err := r.step(); ok || err != nil {
		return m, err
	}
	timeout := time.NewTimer(readTimeout)
	defer timeout.Stop()
	for {
		select {
		case <-r.signal:
		case <-timeout.C:
			r.abandon()
			return Stored{}, fmt.Errorf("store: read from %s: no answer after %s", r.stream, readTimeout)
		case <-ctx.Done():
			return Stored{}, context.Cause(ctx)
		}
		if m, ok, err := r.step(); ok || err != nil {
			return m, err
		}
	}
}

// step hands out what is there, or sees to it that a request is in flight.
func (r *Reader) step() (Stored, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) > 0 {
		m := r.queue[0]
		r.queue[0] = Stored{}
		r.queue = r.queue[1:]
		r.bytes -= len(m.Data)
		return m, true, r.fetch()
	}
	if err := r.err; err != nil {
		r.err = nil
		return Stored{}, false, err
	}
	if r.atEnd {
		r.atEnd = false
		return Stored{}, false, ErrNotFound
	}
	return Stored{}, false, r.fetch()
}

// Wait returns when the stream may hold more, or after a moment anyway.
func (r *Reader) Wait(ctx context.Context) error {
	t := time.NewTimer(pollEvery)
	defer t.Stop()
	select {
	case <-r.news:
	case <-t.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// fetch asks for more unless enough is waiting or asked for. mu is held.
func (r *Reader) fetch() error {
	if r.open || r.atEnd || r.bytes >= readAhead {
		return nil
	}
	r.req++
	body, err := json.Marshal(getRequest{Seq: r.next, NextBySubject: r.filter, Batch: readBatch, MaxBytes: readBytes})
	if err == nil {
		err = r.s.read.PublishRequest("$JS.API.DIRECT.GET."+r.stream, r.prefix+strconv.FormatUint(r.req, 10), body)
	}
	if err != nil {
		return fmt.Errorf("store: read from %s: %w", r.stream, err)
	}
	r.open = true
	return nil
}

// abandon forgets the request in flight; what still comes of it is ignored.
func (r *Reader) abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open, r.atEnd = false, false
	r.req++
}

// take runs in the subscription's goroutine.
func (r *Reader) take(m *nats.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() {
		select {
		case r.signal <- struct{}{}:
		default:
		}
	}()
	if !r.open || m.Subject[strings.LastIndexByte(m.Subject, '.')+1:] != strconv.FormatUint(r.req, 10) {
		return
	}
	switch status := m.Header.Get("Status"); status {
	case "":
		if st, err := parseDirect(m); err != nil {
			r.fail(err)
		} else if st.Seq >= r.next {
			r.queue = append(r.queue, st)
			r.bytes += len(st.Data)
			r.next = st.Seq + 1
		}
	case "204": // end of this answer
		r.open = false
		r.atEnd = m.Header.Get("Nats-Num-Pending") == "0"
		if err := r.fetch(); err != nil && r.err == nil {
			r.err = err
		}
	case "404":
		r.open, r.atEnd = false, true
	default:
		r.fail(fmt.Errorf("%s %s", status, m.Header.Get("Description")))
	}
}

// fail ends the request in flight. mu is held.
func (r *Reader) fail(err error) {
	r.open = false
	r.req++
	r.err = fmt.Errorf("store: read from %s: %w", r.stream, err)
}

// parseDirect reads an answer of direct get: the stored message under headers
// that say where it was.
func parseDirect(m *nats.Msg) (Stored, error) {
	seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	if err != nil {
		return Stored{}, errors.New("answer without a sequence")
	}
	t, err := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	if err != nil {
		return Stored{}, errors.New("answer without a time")
	}
	return Stored{Subject: m.Header.Get("Nats-Subject"), Header: m.Header, Data: m.Data, Seq: seq, Time: t}, nil
}

// news tells readers that a stream has taken a batch: at once within this
// instance, by a small message to the others.
type news struct {
	id string

	mu      sync.Mutex
	nc      *nats.Conn
	waiting []newsWait // guarded by mu
}

type newsWait struct {
	stream string
	ch     chan struct{}
}

const newsSubject = "fp.stored."

func newNews() *news { return &news{id: fmt.Sprintf("%x", random(6))} }

func (n *news) listen(nc *nats.Conn) error {
	n.nc = nc
	_, err := nc.Subscribe(newsSubject+"*", func(m *nats.Msg) {
		if string(m.Data) != n.id {
			n.wake(m.Subject[len(newsSubject):])
		}
	})
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// tell is called after a batch is stored.
func (n *news) tell(stream string) {
	if stream != Blocks {
		return // nobody waits for the others
	}
	n.wake(stream)
	n.nc.Publish(newsSubject+stream, []byte(n.id)) // lost at worst: readers poll
}

func (n *news) wake(stream string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.waiting {
		if w.stream == stream {
			select {
			case w.ch <- struct{}{}:
			default:
			}
		}
	}
}

func (n *news) register(stream string) chan struct{} {
	w := newsWait{stream, make(chan struct{}, 1)}
	n.mu.Lock()
	n.waiting = append(n.waiting, w)
	n.mu.Unlock()
	return w.ch
}

func (n *news) forget(ch chan struct{}) {
	n.mu.Lock()
	n.waiting = slices.DeleteFunc(n.waiting, func(w newsWait) bool { return w.ch == ch })
	n.mu.Unlock()
}
