package testenv

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Published is a message as its publisher knows it. Payloads of one device must
// differ: they are how a message is recognised in the stream.
type Published struct {
	Device  string
	Source  string // one sequential publisher; its messages must stay in order
	N       int    // 1, 2, 3 … within Source
	Subject string
	Lane    wire.Lane
	Headers []wire.Pair
	Payload []byte
}

// Receipt is what the agent promised.
type Receipt struct {
	Epoch string
	Lane  string
	Seq   uint64
}

// Stored is a message as the hub's stream holds it.
type Stored struct {
	Device, Subject string
	Receipt         Receipt
	Headers         map[string][]string // all of them
	Payload         []byte
	StreamSeq       uint64
}

// backfill reports whether newer messages of the lane were stored before.
func (s *Stored) backfill() bool {
	return slices.Equal(s.Headers["Fieldpost-Backfill"], []string{"true"})
}

// Gap is a range that the hub reported as never to come.
type Gap struct {
	Device, Epoch, Lane, Reason string
	First, Last                 uint64
}

// History collects one run: what was published, what was promised, what the
// stream holds. It is safe for concurrent use while the run lasts.
type History struct {
	// Copies allows several spools of one device side by side (clones): order is
	// then checked within an epoch, not across epochs.
	Copies bool
	// FreshFirst lets new messages overtake the backlog: order is then checked
	// within what is marked as backfill, and within the rest.
	FreshFirst bool

	mu        sync.Mutex
	published map[key]*entry
	stored    []Stored
	gaps      []Gap
}

type key struct {
	device string
	sum    [16]byte
}

type entry struct {
	Published
	acked   bool
	receipt Receipt
	stored  int
}

// NewHistory returns an empty history.
func NewHistory() *History { return &History{published: map[key]*entry{}} }

func keyOf(device string, payload []byte) key {
	sum := sha256.Sum256(payload)
	return key{device, [16]byte(sum[:16])}
}

// Sent records an attempt, before it is made.
func (h *History) Sent(p Published) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := keyOf(p.Device, p.Payload)
	if h.published[k] == nil { // a retry is the same message
		h.published[k] = &entry{Published: p}
	}
}

// Acked records that the publisher was told "durable".
func (h *History) Acked(p Published, r Receipt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.published[keyOf(p.Device, p.Payload)]
	e.acked, e.receipt = true, r
}

// Stored records one message of the stream; call it in stream order.
func (h *History) Stored(s Stored) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stored = append(h.stored, s)
}

// Gap records one dead.gap message.
func (h *History) Gap(g Gap) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gaps = append(h.gaps, g)
}

// Counts of a checked history.
type Counts struct{ Sent, Acked, Stored, Gone int }

func (c Counts) String() string {
	return fmt.Sprintf("%d sent, %d acked, %d stored, %d gone with a reason", c.Sent, c.Acked, c.Stored, c.Gone)
}

// NumAcked is the number of messages promised so far.
func (h *History) NumAcked() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, e := range h.published {
		if e.acked {
			n++
		}
	}
	return n
}

// Check says what was lost, stored twice, stored out of order, changed or
// invented. It reports the first few of each kind and the number of all.
func (h *History) Check() (Counts, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.published {
		e.stored = 0
	}
	f := &faults{}
	h.checkStored(f)
	gone := h.checkAcked(f)
	c := Counts{Sent: len(h.published), Stored: len(h.stored), Gone: gone}
	for _, e := range h.published {
		if e.acked {
			c.Acked++
		}
	}
	return c, f.err()
}

// checkStored walks the stream once: identity, content and order.
func (h *History) checkStored(f *faults) {
	type place struct {
		device, lane, epoch string
		backfill            bool
	}
	type sources struct {
		source, lane string
		backfill     bool
	}
	byNumber := map[Receipt]map[string]uint64{} // receipt → device → stream sequence
	lastSeq := map[place]uint64{}
	lastN := map[sources]int{}
	for _, s := range h.stored {
		if byNumber[s.Receipt] == nil {
			byNumber[s.Receipt] = map[string]uint64{}
		}
		if at, dup := byNumber[s.Receipt][s.Device]; dup {
			f.add("duplicated", "%s %v at stream sequence %d and %d", s.Device, s.Receipt, at, s.StreamSeq)
		}
		byNumber[s.Receipt][s.Device] = s.StreamSeq

		backfill := h.FreshFirst && s.backfill()
		p := place{s.Device, s.Receipt.Lane, "", backfill}
		if h.Copies {
			p.epoch = s.Receipt.Epoch
		}
		if s.Receipt.Seq <= lastSeq[p] {
			f.add("reordered", "%s %v follows sequence %d in the same lane", s.Device, s.Receipt, lastSeq[p])
		}
		lastSeq[p] = s.Receipt.Seq

		e := h.published[keyOf(s.Device, s.Payload)]
		if e == nil {
			f.add("invented", "%s %v %q was never published so", s.Device, s.Receipt, clip(s.Payload))
			continue
		}
		if e.stored++; e.stored > 1 {
			f.add("duplicated", "%s %s/%d is stored %d times", s.Device, e.Source, e.N, e.stored)
		}
		if src := (sources{e.Device + "/" + e.Source, e.Lane.String(), backfill}); e.N <= lastN[src] && e.stored == 1 {
			f.add("reordered", "%s %s/%d is stored after %d", s.Device, e.Source, e.N, lastN[src])
		} else {
			lastN[src] = e.N
		}
		checkContent(f, e, &s)
	}
}

func checkContent(f *faults, e *entry, s *Stored) {
	if e.Subject != s.Subject {
		f.add("changed", "%s %v: subject %q became %q", s.Device, s.Receipt, e.Subject, s.Subject)
	}
	if got, want := s.Receipt.Lane, e.Lane.String(); got != want {
		f.add("changed", "%s %v: lane %q became %q", s.Device, s.Receipt, want, got)
	}
	if e.acked && e.receipt != s.Receipt {
		f.add("changed", "%s %s/%d was promised as %v and stored as %v", s.Device, e.Source, e.N, e.receipt, s.Receipt)
	}
	var own []wire.Pair
	for k, vs := range s.Headers {
		if low := strings.ToLower(k); strings.HasPrefix(low, "nats-") || strings.HasPrefix(low, "fieldpost-") {
			continue
		}
		for _, v := range vs {
			own = append(own, wire.Pair{Key: k, Value: v})
		}
	}
	byKey := func(a, b wire.Pair) int { return strings.Compare(a.Key+"\x00"+a.Value, b.Key+"\x00"+b.Value) }
	want := slices.SortedFunc(slices.Values(e.Headers), byKey)
	slices.SortFunc(own, byKey)
	if !slices.Equal(own, want) {
		f.add("changed", "%s %v: headers %v became %v", s.Device, s.Receipt, want, own)
	}
}

// checkAcked returns how many acked messages are covered by a gap.
func (h *History) checkAcked(f *faults) (gone int) {
	for _, e := range h.published {
		switch {
		case !e.acked || e.stored > 0:
		case h.inGap(e):
			gone++
		default:
			f.add("lost", "%s %s/%d, promised as %v", e.Device, e.Source, e.N, e.receipt)
		}
	}
	return gone
}

func (h *History) inGap(e *entry) bool {
	for _, g := range h.gaps {
		if g.Device == e.Device && g.Epoch == e.receipt.Epoch && g.Lane == e.receipt.Lane &&
			g.First <= e.receipt.Seq && e.receipt.Seq <= g.Last {
			return g.Reason != "" && g.Reason != wire.ReasonFailedCommit.String() // a failed commit was never acked
		}
	}
	return false
}

// faults gathers findings by kind.
type faults struct {
	kinds []string
	n     map[string]int
	first map[string][]string
}

func (f *faults) add(kind, format string, args ...any) {
	if f.n == nil {
		f.n, f.first = map[string]int{}, map[string][]string{}
	}
	if f.n[kind] == 0 {
		f.kinds = append(f.kinds, kind)
	}
	f.n[kind]++
	if len(f.first[kind]) < 5 {
		f.first[kind] = append(f.first[kind], fmt.Sprintf(format, args...))
	}
}

func (f *faults) err() error {
	var errs []error
	for _, k := range f.kinds {
		errs = append(errs, fmt.Errorf("%d %s:\n  %s", f.n[k], k, strings.Join(f.first[k], "\n  ")))
	}
	return errors.Join(errs...)
}

func clip(b []byte) string { return string(b[:min(len(b), 60)]) }
