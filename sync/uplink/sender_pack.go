package uplink

import (
	"slices"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	// blockCost is the most that a block takes beside its messages.
	blockCost = 128
	// verbatim: a block of so many bytes goes as the spool holds it, unless the link
	// takes too long for it. Smaller ones gain by company.
	verbatim = 16 << 10
	// floodBlock is the same in a flood: the stream's share is spent, the link has
	// room, is not paid for by the byte, and blocks are sent as they come, within
	// keepingUp. To decode and encode them again would gain some percent of the bytes
	// for half of the processor's time.
	floodBlock = 4 << 10
	keepingUp  = 2 * time.Second
	// streamMost is the most that one frame brings into the stream, before compression.
	streamMost = 48 << 10
	// streamRate is how many bytes a second may go through the stream, and
	// streamBurst how many at once; one that was not foretold counts for more. The
	// stream takes half as many bytes as a block and twenty times the processor's
	// time, here and at the hub: this is some 1 % of a processor. Links of less than
	// slowest bytes a second, where bytes count most, may have slowPace times as much.
	// A hub bears with twice that (streamMuch).
	streamRate  = 64 << 10
	streamBurst = 512 << 10
	slowest     = 10 << 10
	slowPace    = 4
	unforetold  = 8
	// mergeMost is the most that is merged into one block.
	mergeMost = 512 << 10
	// chunkLeast: smaller chunks would cost more than they gain.
	chunkLeast = 4 << 10
	// slowRate is the rate below which a block is worth more effort.
	slowRate = 1 << 20
)

// packer turns messages into frames of one session.
type packer struct {
	stream *wire.StreamEncoder // nil: the hub reads none
	spent  float64             // of streamBurst, at; the last frame may have taken more
	at     time.Time
	ratio  float64 // bytes of messages to one on the wire, of late
}

// streams reports whether the next frame is one of the stream, on a link of so
// many bytes a second (0: unknown).
func (p *packer) streams(now time.Time, rate float64) bool {
	pace := float64(streamRate)
	if rate > 0 && rate < slowest {
		pace *= slowPace
	}
	p.spent = max(p.spent-now.Sub(p.at).Seconds()*pace, 0)
	p.at = now
	return p.stream != nil && p.spent < streamBurst
}

// ratioGain is how much better than the frame before the next is thought to compress
// at most: content may change from frame to frame.
const ratioGain = 1.25

// learn notes what a frame of size bytes of messages has become. Content that
// compresses worse than was thought makes frames that take too long: that counts at
// once. A few messages tell nothing.
func (p *packer) learn(size, sent int) {
	if size < frameLeast {
		return
	}
	ratio := max(float64(size)/float64(sent), 1)
	p.ratio = min(ratio, p.ratio*ratioGain)
}

// codecs is made when it is first needed, and one at a time: each is some
// megabytes of a heap that is kept small.
type codecs struct {
	encoder *wire.Encoder
	slow    bool
}

func (c *codecs) get(slow bool) *wire.Encoder {
	if c.encoder == nil || c.slow != slow {
		level := wire.Fast
		if slow {
			level = wire.Better
		}
		c.encoder, c.slow = wire.NewEncoder(level), slow
	}
	return c.encoder
}

// slow reports whether the link is worth more effort: it is what holds frames
// back. Near the limit it stays what it was.
func (s *Sender) slow() bool {
	r := s.window.rate()
	return s.window.tight && (r < slowRate || s.codecs.slow && r < 2*slowRate)
}

// repack reports whether a block of n bytes is better sent in another cut. A
// large message alone cannot be cut: it goes in chunks.
func (s *Sender) repack(n int, h *wire.Header) bool {
	least := verbatim
	if n >= floodBlock && s.flooded(h) {
		least = floodBlock
	}
	return n < least || n > s.window.frame() && h.Count > 1
}

// flooded reports whether a block comes in a flood that the link carries with ease.
func (s *Sender) flooded(h *wire.Header) bool {
	rate := s.window.rate()
	return rate >= slowRate && !s.window.tight && s.class != Metered &&
		s.now.Sub(time.UnixMilli(h.Accepted)) < keepingUp && !s.pack.streams(s.now, rate)
}

// looseTarget is how many bytes of messages make one frame.
func (s *Sender) looseTarget() int {
	return int(min(float64(s.window.frame())*s.pack.ratio, mergeMost))
}

// costOf is about how many bytes the queue's next frame takes.
func (s *Sender) costOf(q *queue) int {
	p := &q.pieces[0]
	if p.block == nil {
		return s.chunkOf(p)
	}
	return int(float64(min(q.loose, s.looseTarget()))/s.pack.ratio) + 1
}

// fits reports whether the hub's window has room for the queue's next frame,
// whatever its content compresses to.
func (s *Sender) fits(q *queue) bool {
	p := &q.pieces[0]
	n := s.chunkOf(p) + wire.ChunkHead
	if p.block != nil {
		c := s.chunkSize()
		n = min(p.block.Messages[0].Size()+messageCost+blockCost, c+c/2+wire.ChunkHead)
	}
	return s.window.inflight == 0 || s.window.inflight+n <= s.window.hub
}

// begins is how many bytes at most the block has that the queue's next frame, a
// chunk, begins; 0: it begins none.
func (s *Sender) begins(q *queue) int {
	p := &q.pieces[0]
	n, frame := len(p.body), 0
	if p.block != nil {
		c := s.chunkSize()
		n, frame = p.block.Messages[0].Size()+messageCost+blockCost, c+c/2
	} else {
		frame = s.chunkOf(p)
	}
	if p.gone > 0 || n <= frame {
		return 0
	}
	return n
}

// Between attempts to begin a large message for which the hub has no room: each
// costs a session.
const (
	largeFirst = 2 * time.Second
	largeMost  = 30 * time.Second
)

// noRoom takes in that the hub had no room for the large message just begun.
func (s *Sender) noRoom() {
	s.largeWait = min(max(2*s.largeWait, largeFirst), largeMost)
	s.largeAt = s.now.Add(time.Duration((0.5 + s.cfg.Rand()/2) * float64(s.largeWait)))
}

// gather takes from a queue the messages of the next frame: as many as make one,
// of pieces that follow each other. One that would make it much larger begins the
// next. The result holds until the next call.
func (s *Sender) gather(q *queue, target, most int) piece {
	most = min(most, target+target/2)
	first := q.pieces[0]
	out := piece{flow: first.flow, r: wire.Range{First: first.r.First, Last: first.r.First - 1}}
	b := &wire.Block{Header: first.block.Header, Messages: s.memory.frame[:0]}
	for len(q.pieces) > 0 && out.size < target {
		p := &q.pieces[0]
		if p.block == nil || p.flow != out.flow || p.r.First != out.r.Last+1 {
			break
		}
		n, size := fitting(p.block.Messages, target-out.size, most-out.size, len(b.Messages) == 0)
		if n = min(n, wire.MaxCount-len(b.Messages)); n == 0 {
			break
		}
		later := p.block.Accepted - b.Accepted
		for _, m := range p.block.Messages[:n] {
			if m.TTL > 0 { // counts from the acceptance of the block's first message
				m.TTL = min(max(m.TTL+later, 1), wire.MaxTTL)
			}
			b.Messages = append(b.Messages, m)
		}
		out.size += size
		out.r.Last += uint64(n)
		if n < len(p.block.Messages) {
			q.shorten(p, n, size)
			break
		}
		s.memory.left(q.pop().memory)
	}
	s.memory.frame = b.Messages
	b.First, b.Count = out.r.First, out.r.Len()
	b.Base, b.Blanked = out.flow.base, blanked(b.Messages)
	out.block = b
	return out
}

// fitting is how many messages bring a frame to its target without passing the
// most that it can hold; at least one if it is empty.
func fitting(ms []wire.Message, target, most int, empty bool) (n, size int) {
	for n < len(ms) && size < target {
		one := ms[n].Size() + messageCost
		if size+one > most && (n > 0 || !empty) {
			break
		}
		n++
		size += one
	}
	return n, size
}

// shorten takes the first n messages away from the queue's first piece.
func (q *queue) shorten(p *piece, n, size int) {
	rest := &wire.Block{Header: p.block.Header, Messages: p.block.Messages[n:]}
	p.r.First += uint64(n)
	rest.First, rest.Count = p.r.First, p.r.Len()
	p.block = rest
	p.size -= size
	q.loose -= size
}

// push puts a piece back in front.
func (q *queue) push(p piece) {
	p.size = 0 // it is encoded now
	q.pieces = slices.Insert(q.pieces, 0, p)
}

// pop takes the first piece away.
func (q *queue) pop() piece {
	p := q.pieces[0]
	q.pieces[0] = piece{} // let go of the body
	q.pieces = q.pieces[1:]
	q.loose -= p.size
	return p
}

// chunkSize is how much of a message goes in one frame: an urgent one may wait
// behind it.
func (s *Sender) chunkSize() int {
	return max(min(max(s.window.frame(), chunkLeast), s.maxBody-wire.ChunkHead), 1)
}

// chunkOf is how many bytes of an encoded piece its next frame takes. A rest that
// is little longer goes with it.
func (s *Sender) chunkOf(p *piece) int {
	n, left := s.chunkSize(), len(p.body)-p.gone
	switch {
	case p.gone == 0 && left <= s.maxBody && left <= n+n/2:
		return left
	case p.gone > 0 && left <= min(n+n/2, s.maxBody-wire.ChunkHead):
		return left
	}
	return n
}

// slots are the places of blocks that go in chunks.
type slots struct {
	used  [wire.MaxSlots]bool
	kept  [wire.MaxSlots]wire.Partial // that the hub has of earlier sessions; Size 0: none
	bytes int                         // of the blocks that have begun and are not acked
}

// room reports whether a block of n bytes may begin. What a hub has taken in of blocks is not
// in the window any more, but in its memory.
func (s *slots) room(n int) bool { return s.bytes == 0 || s.bytes+n <= wire.MaxChunked }

// take finds a place for a block, and how much of it the hub has already. There is
// one for each queue.
func (s *slots) take(block []byte) (slot, gone int) {
	for i := range s.kept {
		if k := &s.kept[i]; k.Size > 0 && k.Begins(block) {
			gone, s.used[i] = k.Bytes, true
			*k = wire.Partial{}
			return i, gone
		}
	}
	slot = slices.Index(s.used[:], false)
	for i := range s.kept { // better one that holds nothing
		if !s.used[i] && s.kept[i].Size == 0 {
			slot = i
			break
		}
	}
	s.used[slot], s.kept[slot] = true, wire.Partial{}
	return slot, 0
}

// encoded is the next frame of the piece in front, which is encoded: all of it, or
// a chunk.
func (s *Sender) encoded(q *queue) (p piece, typ wire.FrameType) {
	front := &q.pieces[0]
	n, all := s.chunkOf(front), len(front.body)
	if front.gone == 0 && n == all {
		return q.pop(), wire.FrameBlock
	}
	first := front.gone == 0
	if first {
		if front.slot, front.gone = s.slots.take(front.body); front.gone > 0 {
			first, n = false, s.chunkOf(front)
		}
		s.slots.bytes += all
	}
	c := wire.Chunk{Slot: uint8(front.slot), First: first, Left: uint64(all - front.gone - n), Data: front.body[front.gone:][:n]}
	p = *front
	p.body, p.more = wire.AppendChunk(make([]byte, 0, wire.ChunkHead+n), c), c.Left > 0
	if front.gone += n; !p.more {
		s.slots.used[p.slot] = false
		p.whole = all
		q.pop()
	}
	return p, wire.FrameChunk
}

// next is the queue's next frame. On an error the queue waits, and begins anew
// with what could not be sent.
func (s *Sender) next(q *queue) (p piece, typ wire.FrameType, err error) {
	if q.pieces[0].block == nil {
		p, typ = s.encoded(q)
		return p, typ, nil
	}
	// Whatever it compresses to, it must fit.
	target, most := s.looseTarget(), min(mergeMost, s.maxBody*3/4)
	if s.window.inflight > 0 {
		most = min(most, s.window.hub-s.window.inflight-blockCost)
	}
	streams := s.pack.streams(s.now, s.window.rate())
	if streams {
		target, most = min(target, streamMost), min(most, streamMost)
	}
	p = s.gather(q, target, most)
	typ = wire.FrameBlock
	large := p.r.Len() == 1 && p.size > 2*target // it goes in chunks
	if streams && p.size <= most && !large {
		if p.body, err = s.pack.stream.Append(nil, p.block); err == nil {
			typ = wire.FrameStream
			s.pack.spent += float64(p.size + unforetold*len(p.body))
		}
	}
	if typ == wire.FrameBlock { // a refusal leaves the stream as it was
		p.body, err = s.codecs.get(s.slow()).Append(nil, p.block)
	}
	if err != nil {
		q.back(p)
		s.memory.drop()
		q.wait(s.now, cutRetry, err)
		return p, typ, err
	}
	s.pack.learn(p.size, len(p.body))
	p.block = nil
	s.memory.recycle()
	if typ == wire.FrameBlock {
		q.push(p)
		p, typ = s.encoded(q)
	}
	return p, typ, nil
}

// back drops what the queue has prepared, p before it: it is loaded again.
func (q *queue) back(p piece) {
	for _, o := range append([]piece{p}, q.pieces...) {
		cursor := o.flow.cursorOf(q.fresh)
		*cursor = min(*cursor, o.r.First)
	}
	q.pieces, q.loose = nil, 0
}
