package uplink

import (
	"fmt"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// chunked is a block that comes in chunks.
type chunked struct {
	data []byte
	size int       // of all of it
	crc  uint32    // of data
	at   time.Time // of the last chunk
	kept bool      // its session has ended, and the next one has not gone on with it
}

// chunk takes in a part of a block: the last one makes it a block like any other.
func (r *Receiver) chunk(s *recvSession, f *wire.Frame) {
	c, err := wire.ParseChunk(f.Body)
	if err != nil {
		r.end(s, codeOf(err), err.Error())
		return
	}
	p := s.chunks[c.Slot]
	switch {
	case c.First && p != nil && !p.kept:
		r.broken(s, c.Slot, "a block begins in slot %d where %d of %d bytes have come", c.Slot, len(p.data), p.size)
		return
	case c.First:
		if p = r.beginChunks(s, &c); p == nil {
			return
		}
	case p == nil:
		r.broken(s, c.Slot, "a chunk goes on in slot %d, which is empty", c.Slot)
		return
	}
	if len(p.data)+len(c.Data)+int(c.Left) != p.size {
		r.broken(s, c.Slot, "a chunk of %d bytes with %d to come follows %d of %d", len(c.Data), c.Left, len(p.data), p.size)
		return
	}
	if c.Left == 0 && r.crowded(s.device, p.size) { // before the last chunk is taken in: what has come is kept
		r.end(s, wire.CodeUnavailable, "too much waits to be stored; try again later")
		return
	}
	p.data, p.at, p.kept = append(p.data, c.Data...), r.now, false
	p.crc = wire.UpdateCRC(p.crc, c.Data)
	if c.Left > 0 {
		r.soil(s) // the agent counts on the place in its window
		return
	}
	r.dropChunks(s.device, &s.chunks[c.Slot])
	r.block(s, f, p.data, len(c.Data))
}

// broken ends a session whose chunks do not fit together.
func (r *Receiver) broken(s *recvSession, slot uint8, format string, a ...any) {
	r.dropChunks(s.device, &s.chunks[slot])
	r.end(s, wire.CodeCorrupt, fmt.Sprintf(format, a...))
}

// deviceChunked is how much of blocks may come from one device: what a session
// sends, and some that is kept.
const deviceChunked = wire.MaxChunked + wire.MaxBlock

// beginChunks makes room for a block, or ends the session. What nobody goes on with
// gives way, the oldest first.
func (r *Receiver) beginChunks(s *recvSession, c *wire.Chunk) *chunked {
	r.dropChunks(s.device, &s.chunks[c.Slot])
	size := len(c.Data) + int(c.Left)
	for s.device.chunked > 0 && s.device.chunked+size > deviceChunked && r.dropOldest(map[string]*recvDevice{s.device.id: s.device}, s) {
	}
	for r.chunked+int64(size) > r.cfg.MaxChunked && r.dropOldest(r.devices, s) {
	}
	if held := s.device.chunked; held > 0 && held+size > deviceChunked || r.chunked+int64(size) > r.cfg.MaxChunked {
		r.end(s, wire.CodeUnavailable, "too many large messages are on their way; try again later")
		return nil
	}
	p := &chunked{size: size}
	s.chunks[c.Slot] = p
	s.device.chunked += size
	r.chunked += int64(size)
	return p
}

const (
	// silentFor is when the chunks of a session that is heard of no more may go: its
	// process was killed, maybe. A new session of the device has them after takenAfter.
	silentFor  = 5 * time.Second
	takenAfter = time.Second
	// stillFor is when a block may go that does not grow, though its session lives.
	stillFor = 10 * time.Minute
	// othersFor is how long what is kept is safe from other devices: those that find no
	// room ask again and again, and would wipe whatever has come between two links.
	othersFor = 2 * time.Minute
)

// dropOldest forgets the oldest block that nobody goes on with, but for s; false if
// there is none. A session that goes on with it all the same ends, and begins anew.
func (r *Receiver) dropOldest(devices map[string]*recvDevice, s *recvSession) bool {
	var oldest **chunked
	var of *recvDevice
	look := func(d *recvDevice, list *[wire.MaxSlots]*chunked, all bool) {
		for i, p := range list {
			if p == nil || d != s.device && r.now.Sub(p.at) < othersFor {
				continue
			}
			older := (all || p.kept || r.now.Sub(p.at) >= stillFor) && (oldest == nil || p.at.Before((*oldest).at) || p.at.Equal((*oldest).at) && d.id < of.id)
			if older {
				oldest, of = &list[i], d
			}
		}
	}
	for _, d := range devices { // the order does not matter: ties go by id
		look(d, &d.kept, true)
		for _, o := range d.sessions {
			look(d, &o.chunks, o != s && r.now.Sub(o.heard) >= silentFor)
		}
	}
	if oldest == nil {
		return false
	}
	r.dropChunks(of, oldest)
	return true
}

// keepFor is how long the hub keeps what has come of a large message when its
// session has ended. A link that is up for minutes at a time, or in a window of each
// night, would else never get one across.
const keepFor = 72 * time.Hour

// keepChunks leaves what has come of blocks to the device's next session.
func (r *Receiver) keepChunks(s *recvSession) {
	for i, p := range s.chunks {
		if p != nil {
			r.dropChunks(s.device, &s.device.kept[i])
			p.kept = true
			s.device.kept[i], s.chunks[i] = p, nil
		}
	}
}

// partials hands a new session what is kept, and what sessions hold that have fallen
// silent, and lists it.
func (r *Receiver) partials(s *recvSession) (out []wire.Partial) {
	for _, o := range s.device.sessions {
		if o != s && r.now.Sub(o.heard) >= takenAfter {
			r.keepChunks(o)
		}
	}
	for i, p := range s.device.kept {
		if p != nil {
			s.chunks[i], s.device.kept[i] = p, nil
			out = append(out, wire.Partial{Slot: uint8(i), Bytes: len(p.data), Size: p.size, CRC: p.crc})
		}
	}
	return out
}

// expireKept forgets what is kept for a device and has not grown for long.
func (r *Receiver) expireKept(d *recvDevice) {
	expire := func(list *[wire.MaxSlots]*chunked) {
		for i, p := range list {
			if p != nil && p.kept && r.now.Sub(p.at) >= keepFor {
				r.dropChunks(d, &list[i])
			}
		}
	}
	expire(&d.kept)
	for _, s := range d.sessions {
		expire(&s.chunks)
	}
}

// dropChunks gives up the room of a slot.
func (r *Receiver) dropChunks(d *recvDevice, slot **chunked) {
	if p := *slot; p != nil {
		d.chunked -= p.size
		r.chunked -= int64(p.size)
		*slot = nil
	}
}
