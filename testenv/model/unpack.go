package model

import (
	"strconv"

	"github.com/fieldpost/fieldpost/hub/unpack"
	"github.com/fieldpost/fieldpost/sync/wire"
)

const routeStream = "EDGE"

var tables = unpack.Tables{{From: 0, Table: unpack.Table{{Match: ">", Stream: routeStream, Prefix: "edge"}}}}

// unpacking is the route's stream, the durable checkpoint, and the unpackers
// that race for both: a lease keeps others away in good times only.
type unpacking struct {
	w        *world
	stream   []int // every message it ever took, purged ones included
	saved    unpack.Checkpoint
	revision int
	workers  []*unpacker
}

// unpacker is one hub instance's worker.
type unpacker struct {
	u       *unpacking
	running bool

	revision int
	fact     unpack.Checkpoint // true, maybe not saved yet
	pos      unpack.Position   // resume
	skip     uint64
	seen     bool // the stream's last sequence was read

	next    uint64          // ledger sequence after which to read
	outs    []int           // projected, not sent yet
	read    unpack.Position // after outs
	predict uint64
	flights []batch
	enc     *wire.Decoder
	proj    *unpack.Projector
}

// batch is a publish on its way.
type batch struct {
	msgs []int
	last uint64 // the guard
	end  unpack.Position
}

func newUnpacking(w *world) unpacking {
	u := unpacking{w: w, saved: unpack.Checkpoint{Position: unpack.Position{Block: 1}}}
	for range 2 {
		u.workers = append(u.workers, &unpacker{enc: wire.NewDecoder(), proj: unpack.NewProjector(routeStream, tables)})
	}
	return u
}

func (u *unpacking) step() {
	k := u.workers[u.w.rng.IntN(len(u.workers))]
	k.u = u
	if u.w.calm == 0 && u.w.rng.IntN(80) == 0 {
		k.crash()
		return
	}
	k.step()
}

// crash forgets everything; what is in flight may still be stored.
func (k *unpacker) crash() {
	for _, b := range k.flights {
		if k.u.w.rng.IntN(2) == 0 {
			k.u.publish(b)
		}
	}
	k.running, k.flights, k.outs = false, nil, nil
}

// publish stores a batch if its guard holds.
func (u *unpacking) publish(b batch) bool {
	if b.last != uint64(len(u.stream)) && !u.w.rules.NoUnpackGuard {
		return false
	}
	u.stream = append(u.stream, b.msgs...)
	return true
}

// step does one of the small things an unpacker does.
func (k *unpacker) step() {
	rng := k.u.w.rng
	switch {
	case !k.running: // resume: the checkpoint first, the stream's last sequence later
		*k = unpacker{u: k.u, enc: k.enc, proj: k.proj, running: true, fact: k.u.saved, revision: k.u.revision}
	case !k.seen:
		skip, err := k.fact.Resume(uint64(len(k.u.stream)))
		if err != nil {
			k.u.w.check.fail("unpack: %v", err)
			return
		}
		k.seen, k.skip, k.pos, k.predict = true, skip, k.fact.Position, uint64(len(k.u.stream))
		k.next = k.pos.Block - 1
	case len(k.flights) > 0 && rng.IntN(2) == 0:
		k.land()
	case len(k.outs) > 0 && len(k.flights) < 3:
		k.send()
	case rng.IntN(6) == 0:
		k.save()
	default:
		k.readBlock()
	}
}

func (k *unpacker) readBlock() {
	r, ok := k.u.w.ledger.next(k.next)
	if !ok || len(k.outs) > 8 {
		return
	}
	if r.seq > k.next+1 && k.next+1 < k.u.saved.Block {
		k.crash() // what it still needs was purged: another has gone on
		return
	}
	k.next = r.seq
	if r.data != nil {
		b, err := k.enc.Decode(r.data, false)
		if err != nil {
			k.u.w.check.fail("unpack: %v", err)
			return
		}
		outs, err := k.proj.Project(nil, r.seq, wire.BlockSubject(r.subject.device, r.subject.flow), b)
		if err != nil {
			k.u.w.check.fail("unpack: %v", err)
			return
		}
		for _, o := range unpack.Cut(&k.pos, &k.skip, r.seq, outs) {
			id, err := strconv.Atoi(string(o.Data))
			if err != nil {
				k.u.w.check.fail("unpack: %v", err)
			}
			k.outs = append(k.outs, id)
		}
	}
	k.read = unpack.Position{Block: r.seq + 1}
	if len(k.outs) == 0 && len(k.flights) == 0 && k.skip == 0 {
		k.fact.Position, k.fact.StreamSeq = k.read, k.predict
	}
}

// send publishes all that is projected; boundaries lie between blocks, and within
// one only if a crash cut it so.
func (k *unpacker) send() {
	n := len(k.outs)
	k.flights = append(k.flights, batch{msgs: k.outs[:n:n], last: k.predict, end: k.read})
	k.predict += uint64(n)
	k.outs = nil
}

// land lets the oldest batch arrive; its answer may be lost.
func (k *unpacker) land() {
	b := k.flights[0]
	k.flights = k.flights[1:]
	luck := k.u.w.rng.IntN(12)
	if k.u.w.calm > 0 {
		luck = 2
	}
	if luck == 0 { // the batch is lost; those behind it fail by their guards
		k.giveUp()
		return
	}
	if !k.u.publish(b) || luck == 1 {
		k.giveUp()
		return
	}
	k.fact.Position, k.fact.StreamSeq = b.end, b.last+uint64(len(b.msgs))
}

// giveUp lets what is in flight arrive and resumes.
func (k *unpacker) giveUp() {
	for _, b := range k.flights {
		k.u.publish(b)
	}
	k.running, k.flights, k.outs = false, nil, nil
}

// save makes the fact durable unless another has done so since the resume.
func (k *unpacker) save() {
	if k.revision != k.u.revision {
		k.giveUp()
		return
	}
	if k.fact == k.u.saved {
		return
	}
	k.u.revision++
	k.revision, k.u.saved = k.u.revision, k.fact
}

// safe is the ledger sequence up to which the durable checkpoint needs nothing.
func (u *unpacking) safe() uint64 { return u.saved.Block - 1 }

func (u *unpacking) done() bool {
	_, more := u.w.ledger.next(u.saved.Block - 1)
	return !more || len(u.stream) >= len(u.w.check.route) && u.saved.StreamSeq >= uint64(len(u.w.check.route))
}

// final compares the stream with the projection of everything that was stored.
func (u *unpacking) final() {
	want := u.w.check.route
	for i := range max(len(want), len(u.stream)) {
		switch {
		case i >= len(u.stream):
			u.w.check.fail("unpack: a hole: the stream ends at %d, %d were stored", len(u.stream), len(want))
		case i >= len(want):
			u.w.check.fail("unpack: duplicated: the stream has %d messages, %d were stored", len(u.stream), len(want))
		case u.stream[i] != want[i]:
			u.w.check.fail("unpack: message %d is %d, want %d", i+1, u.stream[i], want[i])
		default:
			continue
		}
		return
	}
}
