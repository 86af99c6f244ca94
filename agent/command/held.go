package command

import (
	"slices"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// place is where a record with data lies in the log.
type place struct {
	off  int64
	size int // of the record
	data int // bytes of its data
}

// entry is a command that is not settled, or of which the hub does not know yet
// that it is.
type entry struct {
	id, subject string
	sent        int64 // hub's clock, Unix milliseconds
	ends        int64 // clock
	ackWait     int64 // milliseconds
	maxDeliver  int
	deliveries  int
	at          place // of the payload; when settled, of the result

	state  wire.CommandState // delivered or final
	since  int64             // of state; device's clock, Unix milliseconds
	reason string            // of the state, or of the last return
	noted  bool              // the hub knows the state
	cancel bool              // to be given up when the lease ends

	// Of the present run only, but for lent:
	lent     int64       // when it was handed out, clock; 0: it is not
	leaseEnd int64       // clock
	by       *Subscriber // nil: it is gone
	retry    int64       // not handed out before; clock
}

func (e *entry) settled() bool { return e.state.Settled() }

// overhead is what a command is charged beside its payload, so that empty ones
// are bounded too.
const overhead = 512

func (e *entry) charge() int { return overhead + e.at.data }

// book is everything that is held, in memory but for payloads and results. It
// is changed by apply alone, from the log when it is opened and by what is
// appended to it later: so both come to the same.
type book struct {
	stream string // incarnation of COMMANDS
	after  uint64

	entries map[string]*entry
	order   []*entry // as they were taken; settled ones too
	memory  memory

	held    int   // bytes of commands that are not settled
	results int   // bytes of results not noted
	clock   int64 // the latest that was written
}

func newBook() *book { return &book{entries: map[string]*entry{}} }

// apply takes in a record that lies at p. One that makes no sense changes
// nothing: what came before it may have been damaged.
func (b *book) apply(r *record, p place) {
	b.clock = max(b.clock, r.Clock)
	e := b.entries[r.ID]
	switch r.kind {
	case kindCursor:
		b.stream, b.after = r.Stream, r.After
	case kindTaken:
		b.take(r, p)
	case kindLent:
		if e != nil && !e.settled() {
			e.lent, e.deliveries = r.Clock, r.Deliveries
		}
	case kindReturned:
		if e != nil && !e.settled() {
			e.lent, e.reason = 0, r.Reason
		}
	case kindCancel:
		if e != nil && !e.settled() {
			e.cancel = true
		}
	case kindSettled:
		b.settle(r, p)
	case kindNoted:
		if e != nil && e.state == r.State {
			b.note(e)
		}
	case kindRemembered:
		b.memory.decode(r.data)
	}
}

func (b *book) take(r *record, p place) {
	if b.entries[r.ID] != nil {
		return
	}
	e := &entry{
		id: r.ID, subject: r.Subject, sent: r.Sent, ends: r.Ends, ackWait: r.AckWait, maxDeliver: r.MaxDeliver,
		deliveries: r.Deliveries, at: p, state: wire.CommandDelivered, since: r.At, reason: r.Reason,
		noted: r.Noted, cancel: r.Cancel, lent: r.Lent,
	}
	b.add(e)
	b.held += e.charge()
}

func (b *book) add(e *entry) {
	b.entries[e.id] = e
	b.order = append(b.order, e)
}

// settle makes a command final; one that is not held is there to be reported.
func (b *book) settle(r *record, p place) {
	e := b.entries[r.ID]
	switch {
	case e == nil:
		e = &entry{id: r.ID, ends: r.Ends}
		b.add(e)
	case e.settled():
		return
	default:
		b.held -= e.charge()
	}
	e.state, e.since, e.reason, e.noted = r.State, r.At, r.Reason, false
	e.deliveries, e.at = r.Deliveries, p
	e.lent, e.by, e.cancel = 0, nil, false
	b.results += p.data
	b.memory.add(keyOf(e.id), settled{numberOf(e.state), max(e.ends, r.Clock+rememberAtLeast)})
}

// note: the hub knows the state of e. When that is final, nothing is left to do
// but to remember it.
func (b *book) note(e *entry) {
	e.noted = true
	if !e.settled() {
		return
	}
	b.results -= e.at.data
	delete(b.entries, e.id)
	b.order = slices.DeleteFunc(b.order, func(o *entry) bool { return o == e })
}

// live is about how many bytes of the log are needed.
func (b *book) live() int64 {
	return int64(b.held + b.results + overhead*len(b.order) + rememberedSize*len(b.memory.ids))
}

// record is what a log has to hold of e, payload and result aside: those
// are copied.
func (e *entry) record(clock int64) *record {
	r := &record{kind: kindTaken, head: head{
		Clock: clock, ID: e.id, Ends: e.ends, Deliveries: e.deliveries, At: e.since, Reason: e.reason, Noted: e.noted,
	}}
	if e.settled() {
		r.kind, r.State = kindSettled, e.state
		return r
	}
	r.Subject, r.Sent, r.AckWait, r.MaxDeliver = e.subject, e.sent, e.ackWait, e.maxDeliver
	r.Lent, r.Cancel = e.lent, e.cancel
	return r
}
