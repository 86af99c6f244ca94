package unpack

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/fieldpost/fieldpost/hub/store"
)

const (
	inFlight   = 4       // batches that wait for their answer
	batchBytes = 4 << 20 // payload of one batch, unless one message is larger
	readChunks = 4       // decoded blocks that wait
	// An atomic batch costs about as much as so many messages by themselves, each
	// with its own sync: the server keeps it in files of its own until the commit.
	fewMessages = 8
	// checkpointBatches bounds how much a resume after a crash has to count.
	checkpointBatches = 64
)

// pump publishes what the feed decodes, in order, several batches in flight,
// each guarded by the sequence that the one before will end at. It ends at the
// first failure; what is in flight behind it then fails too, or was stored and
// is found by the next resume.
type pump struct {
	w      *worker
	from   start
	course course

	// Owned by run's goroutine.
	slots   [store.MaxBatch]slot
	batch   []store.Msg
	bytes   int
	read    Position // after everything that is in batch, in flight, or stored
	skipped bool     // the start's skip is done: fact may move
	predict uint64   // the stream's last sequence once all in flight is stored
	flying  int
	unsaved int // batches since the last checkpoint
	fact    Checkpoint
	stored  bool // anything at all
	over    bool // the course's end is read
}

// flight is a batch whose answer is awaited, or a few messages instead of one,
// each with its own guard.
type flight struct {
	p    []*store.Pending
	n    int
	end  Position
	last uint64 // predicted
}

// landed is a flight's outcome.
type landed struct {
	flight
	seq uint64
	err error
}

func (p *pump) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	chunks := make(chan chunk, readChunks)
	flights := make(chan flight, inFlight)
	results := make(chan landed, inFlight)
	var wg sync.WaitGroup
	wg.Go(func() {
		f := &feed{w: p.w, from: p.from, course: p.course, out: chunks}
		cancel(f.run(ctx))
	})
	wg.Go(func() {
		for f := range flights {
			// Not ctx: what is in flight is waited for, so that it does not get in the
			// way of the next turn.
			l := landed{flight: f}
			for _, p := range f.p {
				seq, err := p.Wait(context.WithoutCancel(ctx))
				if l.seq = seq; err != nil && l.err == nil {
					l.err = err
				}
			}
			results <- l
		}
	})
	p.read, p.predict, p.fact, p.skipped = p.from.Position, p.from.last, p.from.Checkpoint, p.from.skip == 0
	err := p.loop(ctx, chunks, flights, results)
	cancel(err)
	close(flights)
	for ; p.flying > 0; p.flying-- {
		p.land(<-results) //nolint:errcheck // the first error counts
	}
	wg.Wait()
	if p.unsaved > 0 {
		p.w.save(ctx, p.fact) //nolint:errcheck // an older checkpoint is as true
	}
	return err
}

// loop ends with the first error, with ctx's, or with errCourseEnd once
// everything up to the course's end is stored and the checkpoint says so.
func (p *pump) loop(ctx context.Context, chunks <-chan chunk, flights chan<- flight, results <-chan landed) error {
	tick := time.NewTicker(p.w.u.cfg.CheckpointEvery)
	defer tick.Stop()
	var c chunk // what is not in a batch yet
	for {
		if done := p.fill(&c); done && p.mayRead() {
			// Everything is in the batch: is there more at hand?
			select {
			case c = <-chunks:
				p.begin(c)
				continue
			default:
			}
		}
		if p.mustSend(&c) {
			f, err := p.send()
			if err != nil {
				return err
			}
			flights <- f // capacity inFlight
			continue
		}
		if p.over && p.flying == 0 {
			p.unsaved = max(p.unsaved, 1)
			return cmp.Or(p.checkpoint(ctx, true), errCourseEnd)
		}
		in := chunks
		if !p.mayRead() || len(c.outs) > 0 {
			in = nil
		}
		select {
		case c = <-in:
			p.begin(c)
		case l := <-results:
			p.flying--
			if err := p.land(l); err != nil {
				return err
			}
			if err := p.checkpoint(ctx, p.unsaved >= checkpointBatches); err != nil {
				return err
			}
		case <-tick.C:
			p.w.health.set(p.w.u, p.w.stream, nil)
			if err := p.checkpoint(ctx, true); err != nil {
				return err
			}
			if err := p.w.news(ctx, p.skipped, p.course.tables); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// begin notes that everything before the chunk's messages is taken.
func (p *pump) begin(c chunk) {
	p.read = Position{Block: c.seq, Index: c.from}
	if len(c.outs) == 0 {
		p.read = Position{Block: c.next}
	}
	p.over = c.end
	if !p.skipped && c.left == 0 {
		p.skipped = true
		p.fact.Position, p.fact.StreamSeq = p.read, p.from.last
		p.unsaved = max(p.unsaved, 1)
	}
	p.settle()
}

func (p *pump) mayRead() bool { return len(p.batch) < store.MaxBatch && p.bytes < batchBytes }

// fill moves messages into the batch and reports whether all of c is there.
func (p *pump) fill(c *chunk) (done bool) {
	for i := range c.outs {
		o := &c.outs[i]
		n := len(p.batch)
		if n == store.MaxBatch || n > 0 && p.bytes+len(o.Data) > batchBytes {
			c.outs = c.outs[i:]
			p.bytes = max(p.bytes, batchBytes) // full
			return false
		}
		p.batch = append(p.batch, p.slots[n].fill(o, c.epoch, c.lane))
		p.bytes += len(o.Data)
		p.read.Index++
	}
	if len(c.outs) > 0 {
		p.read = Position{Block: c.next}
	}
	c.outs = nil
	return true
}

// mustSend: a full batch as soon as it may fly, less only when nothing flies, so
// that batches grow while the disk is busy.
func (p *pump) mustSend(c *chunk) bool {
	full := len(c.outs) > 0 || !p.mayRead()
	return len(p.batch) > 0 && (p.flying == 0 || full && p.flying < inFlight)
}

// send writes the batch to the connection.
func (p *pump) send() (flight, error) {
	if err := p.w.u.fault("unpack:publish"); err != nil {
		return flight{}, err
	}
	n, step := len(p.batch), len(p.batch)
	if n <= fewMessages {
		step = 1
	}
	f := flight{n: n, end: p.read, last: p.predict + uint64(n)}
	for i := 0; i < n; i += step {
		pending, err := p.start(p.batch[i : i+step])
		if err != nil {
			return flight{}, err // those before are found by the next resume
		}
		f.p = append(f.p, pending)
	}
	p.flying++
	p.batch, p.bytes = p.batch[:0], 0
	return f, nil
}

// start sends msgs under the guard of the predicted sequence.
func (p *pump) start(msgs []store.Msg) (*store.Pending, error) {
	h := msgs[0].Header
	h[store.GuardStream] = []string{strconv.FormatUint(p.predict, 10)}
	defer delete(h, store.GuardStream)
	pending, err := p.w.u.cfg.Store.StartBatch(msgs)
	if err == nil {
		p.predict += uint64(len(msgs))
	}
	return pending, err
}

// land takes an outcome. A batch in flight behind a failed one never counts:
// facts come in order.
func (p *pump) land(l landed) error {
	if l.err == nil {
		l.err = p.w.u.fault("unpack:commit")
	}
	switch {
	case l.err != nil:
		return l.err
	case p.fact.StreamSeq+uint64(l.n) != l.last || l.seq != l.last:
		return fmt.Errorf("unpack: a batch of %d for sequence %d of %s is stored up to %d, after %d", l.n, l.last, p.w.stream, l.seq, p.fact.StreamSeq)
	}
	p.stored = true
	p.w.u.cfg.OnMessages(p.w.stream, l.n)
	p.fact.Position, p.fact.StreamSeq = l.end, l.last
	p.unsaved++
	p.settle()
	p.w.confirm(p.fact)
	p.w.health.set(p.w.u, p.w.stream, nil)
	return nil
}

// settle moves the fact past blocks of which the stream holds nothing.
func (p *pump) settle() {
	if p.skipped && p.flying == 0 && len(p.batch) == 0 && p.fact.Before(p.read) {
		p.fact.Position = p.read
		p.unsaved = max(p.unsaved, 1)
		p.w.confirm(p.fact)
	}
}

// checkpoint saves the fact if it is new and due.
func (p *pump) checkpoint(ctx context.Context, due bool) error {
	if p.unsaved == 0 || !due {
		return nil
	}
	if err := p.w.save(ctx, p.fact); err != nil {
		return err
	}
	p.unsaved = 0
	return nil
}
