package spool

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// segment is one folder of blocks: the spare, a head, or sealed. What it holds
// is known from the moment of the fsync; a sealed one is opened only to be read.
type segment struct {
	num uint64
	dir string

	// Guarded by Spool.mu.
	parts  []part
	disk   int64  // allocated bytes
	ids    int    // publisher ids that were committed to it in this run
	key    string // id of the key that encrypts it
	sealed bool
	gone   bool // removed or quarantined; nothing refers to it any more

	// Of a loose one (loose.go); guarded by use.
	ends    map[string]int64 // where the content of its logs ends
	cause   error            // what is wrong with it; nil: it is sealed where it is
	report  *Report          // what was told of that
	repairs int              // how often it was found damaged in this run

	// use is held shared while src is read, exclusively while it opens or closes.
	// It is never waited for under Spool.mu.
	use  sync.RWMutex
	src  source // nil while closed
	head *head  // nil once sealed

	memory *memory // not nil: no folder, only memory holds it

	imu   sync.Mutex
	index map[wire.Flow][]wire.Range // the blocks, in order; nil while a sealed segment is closed

	writing sync.Mutex // held while a commit is written and shown; comes before use and mu
	frozen  bool       // guarded by writing: it takes no more commits, to be removed

	failed   atomic.Bool  // a write or sync failed, or it is frozen: it takes no more commits
	lastRead atomic.Int64 // Unix nanoseconds
}

// part is what a segment holds of one flow.
type part struct {
	flow   wire.Flow
	base   uint64 // of the flow; 0 if unknown
	ranges wire.Ranges
	blocks int
	bytes  int64 // encoded
	oldest int64 // acceptance of its first block, Unix milliseconds by the stamps of its epoch
	newest int64 // … of its last; 0: not known
	ages   ages  // … of those between; empty: not known
	ttl    ttlSpan
	judged int64 // spool clock: no message of it expires before by its ttl; 0: nobody has looked
}

// ttlSpan is when messages expire by their own ttl, by the stamps of their
// epoch, and how many have one.
type ttlSpan struct {
	n           uint64
	first, last int64
}

// anyTTL stands for blocks that nobody has looked into.
var anyTTL = ttlSpan{n: 1, first: math.MinInt64 / 2, last: math.MaxInt64 / 2}

func ttlOf(b *wire.Block) (t ttlSpan) {
	for i := range b.Messages {
		if ttl := b.Messages[i].TTL; ttl > 0 {
			t.join(ttlSpan{1, b.Accepted + ttl, b.Accepted + ttl})
		}
	}
	return t
}

func (t *ttlSpan) join(o ttlSpan) {
	switch {
	case o.n == 0:
	case t.n == 0:
		*t = o
	default:
		t.n, t.first, t.last = t.n+o.n, min(t.first, o.first), max(t.last, o.last)
	}
}

func (s *Spool) segmentDir(num uint64) string {
	return filepath.Join(s.cfg.Dir, fmt.Sprintf("seg-%012d", num))
}

// source is where a segment's blocks are read from.
type source interface {
	get(key []byte) ([]byte, error)
	Close() error
}

type badgerSource struct {
	*badger.DB
	pages *pages // of the value log
}

func (b badgerSource) get(key []byte) (data []byte, err error) {
	err = b.View(func(txn *badger.Txn) error {
		item, err := txn.Get(key)
		if err == nil {
			data, err = item.ValueCopy(nil)
		}
		return err
	})
	if len(data) >= threshold {
		b.pages.touch(len(data))
	}
	return data, err
}

// partOf returns what the parts hold of f, or nil.
func partOf(parts []part, f wire.Flow) *part {
	for i := range parts {
		if parts[i].flow == f {
			return &parts[i]
		}
	}
	return nil
}

// add counts a block that became durable. Spool.mu is held.
func (g *segment) add(rec record) {
	p := partOf(g.parts, rec.flow)
	if p == nil {
		g.parts = append(g.parts, part{flow: rec.flow, oldest: rec.accepted})
		p = &g.parts[len(g.parts)-1]
	}
	p.extend(rec.Range)
	p.blocks++
	p.bytes += int64(len(rec.data))
	p.newest = rec.accepted
	p.ages.note(rec.First, rec.accepted)
	p.ttl.join(rec.ttl)
	g.imu.Lock()
	g.index[rec.flow] = append(g.index[rec.flow], rec.Range)
	g.imu.Unlock()
}

// extend adds r; the usual case, right behind the last, copies nothing.
func (p *part) extend(r wire.Range) {
	if n := len(p.ranges); n > 0 && p.ranges[n-1].Last+1 == r.First {
		p.ranges[n-1].Last = r.Last
		return
	}
	p.ranges = p.ranges.Add(r)
}

// find returns the block that holds the lowest sequence ≥ from. open is false
// if the segment would have to be opened first.
func (g *segment) find(f wire.Flow, from uint64) (r wire.Range, found, open bool) {
	g.imu.Lock()
	defer g.imu.Unlock()
	if g.index == nil {
		return r, false, false
	}
	spans := g.index[f]
	i, _ := slices.BinarySearchFunc(spans, from, func(r wire.Range, seq uint64) int {
		if r.Last < seq {
			return -1
		}
		return 1
	})
	if i == len(spans) {
		return r, false, true
	}
	return spans[i], true, true
}

// get reads one block and checks that it is the one that was written. use is
// held shared.
func (g *segment) get(f wire.Flow, r wire.Range) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil { // a bad sector under a mapping
			data, err = nil, &CorruptError{Segment: g.dir, Detail: fmt.Sprintf("%s %s cannot be read: %v", f, r, p)}
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	data, err = g.src.get(appendKey(nil, f, r))
	if err != nil {
		return nil, &CorruptError{Segment: g.dir, Detail: fmt.Sprintf("%s %s cannot be read", f, r), Err: err}
	}
	if _, err := checkBlock(f, r, data); errors.Is(err, wire.ErrVersion) {
		return nil, newerBlock(g.dir, err)
	} else if err != nil {
		return nil, &CorruptError{Segment: g.dir, Detail: "a block is not what was written", Err: err}
	}
	return data, nil
}

// checkBlock makes sure that data is an intact block of f that covers r. An
// unreadable value arrives here as empty, with no error from Badger.
func checkBlock(f wire.Flow, r wire.Range, data []byte) (wire.Header, error) {
	h, err := wire.ParseHeader(data)
	if err == nil && (h.Flow != f || h.Range() != r) {
		err = fmt.Errorf("it is %s %s", h.Flow, h.Range())
	}
	if err != nil {
		return h, fmt.Errorf("%s %s: %w", f, r, err)
	}
	return h, nil
}

// lowest returns the lowest sequence ≥ from that is in rs.
func lowest(rs wire.Ranges, from uint64) (uint64, bool) {
	for _, r := range rs {
		if r.Last >= from {
			return max(r.First, from), true
		}
	}
	return 0, false
}

// subtract returns what of rs is not in without.
func subtract(rs, without wire.Ranges) (out wire.Ranges) {
	for _, r := range rs {
		out = append(out, without.Missing(r)...)
	}
	return out
}
