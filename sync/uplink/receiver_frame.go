package uplink

import (
	"errors"
	"fmt"

	"github.com/fieldpost/fieldpost/sync/wire"
)

func (r *Receiver) frame(ev RecvFrame) {
	f, err := wire.ParseFrame(ev.Data)
	if err != nil {
		r.do(DoCount{Device: ev.Device, What: CountMalformed})
		return
	}
	s := r.sessionOf(ev.Device, &f)
	if s == nil {
		r.stray(ev.Device)
		return
	}
	if r.stopping {
		r.do(DoCount{Device: ev.Device, What: CountStopping})
		return
	}
	if f.Counter <= s.counter {
		r.do(DoCount{Device: ev.Device, What: CountRepeated})
		return
	}
	if f.Counter != s.counter+1 {
		r.end(s, wire.CodeGap, fmt.Sprintf("frame %d follows %d", f.Counter, s.counter))
		return
	}
	s.counter, s.heard = f.Counter, r.now
	if len(s.changed) > 0 {
		r.soil(s) // changes from before its first frame
	}
	switch f.Type {
	case wire.FrameBlock:
		s.lazy = f.Lazy
		r.block(s, &f, f.Body, len(f.Body))
	case wire.FrameStream:
		s.lazy = f.Lazy
		r.streamed(s, &f)
	case wire.FrameChunk:
		s.lazy = f.Lazy
		r.chunk(s, &f)
	case wire.FramePing:
		s.pinged, s.lazy = true, false
		r.soil(s)
	case wire.FrameConfirm:
		r.do(DoConfirm{s.device.id, string(f.Body)})
	case wire.FrameDrained:
		r.drained(s, wire.Epoch(f.Body))
	case wire.FrameBye:
		r.leave(s)
		r.do(DoEnd{Device: s.device.id, Session: s.id})
	}
}

// sessionOf is the open session of a device that a frame belongs to, or nil.
func (r *Receiver) sessionOf(device string, f *wire.Frame) *recvSession {
	d := r.devices[device]
	if d == nil {
		return nil
	}
	for _, s := range d.sessions {
		if !s.opening && f.Of(s.id) {
			return s
		}
	}
	return nil
}

// stray answers a frame of a session that is not known here, so that its agent
// need not wait for silence to notice. A device that has a session here is told
// nothing: the frame is a late one, or harmed, and its counter is missed soon.
func (r *Receiver) stray(device string) {
	r.do(DoCount{Device: device, What: CountStray})
	d := r.devices[device]
	if d == nil || len(d.sessions) > 0 || r.now.Sub(d.strayAt) < strayEvery {
		return
	}
	d.strayAt = r.now
	r.do(DoEnd{Device: device, Stray: true, Err: &wire.SessionError{
		Code: wire.CodeIdle, Detail: "this hub instance does not know the session, or no longer",
	}})
}

// streamed takes in a frame of the session's stream.
func (r *Receiver) streamed(s *recvSession, f *wire.Frame) {
	if !r.mayStream(s.device) {
		r.end(s, wire.CodeRefused, fmt.Sprintf("more than %d bytes a second through the stream", streamMuch))
		return
	}
	data, err := r.unstream(s, f.Body)
	if err != nil {
		r.end(s, codeOf(err), err.Error())
		return
	}
	r.block(s, f, data, len(f.Body))
}

// block takes in a block, however it came; sent is what its last frame takes of
// the window.
func (r *Receiver) block(s *recvSession, f *wire.Frame, data []byte, sent int) {
	if len(data) > wire.MaxBlock {
		r.end(s, wire.CodeRefused, fmt.Sprintf("a block of %d bytes; the limit is %d", len(data), wire.MaxBlock))
		return
	}
	h, err := wire.ParseHeader(data)
	if err != nil {
		r.end(s, codeOf(err), err.Error())
		return
	}
	switch {
	case s.blocks > 0 && s.queued+sent > r.cfg.Window, s.blocks >= r.cfg.MaxBlocks:
		r.end(s, wire.CodeRefused, fmt.Sprintf("%d blocks and %d bytes in flight; the window is %d bytes", s.blocks+1, s.queued+sent, r.cfg.Window))
		return
	case r.crowded(s.device, len(data)):
		r.end(s, wire.CodeUnavailable, "too much waits to be stored; try again later")
		return
	}
	if s.byFlow[h.Flow] == nil {
		if s.more++; s.more > r.cfg.MaxFlows {
			r.end(s, wire.CodeRefused, fmt.Sprintf("more than %d flows that were not announced", r.cfg.MaxFlows))
			return
		}
	}
	a := r.attach(s, h.Flow)
	a.sent = true
	r.arrive(a.f, &recvBlock{
		s: s, header: h.Range(), base: h.Base, void: h.Reason, blanked: h.Blanked, backfill: f.Backfill,
		data: data, sent: sent, arrived: r.now,
	})
}

// crowded reports whether a block of n bytes is too much beside what waits.
func (r *Receiver) crowded(d *recvDevice, n int) bool {
	held := heldBy(n)
	return d.queued > 0 && d.queued+held > int64(2*r.cfg.Window) || r.queued+held > r.cfg.MaxQueued
}

// heldBy is about the memory of a block of n bytes that waits: small ones are mostly
// what is noted of them.
func heldBy(n int) int64 { return int64(n) + 256 }

// A frame of the stream may be some bytes that stand for 128 KiB and take 20 ms. No
// device gets more of this than streamMuch bytes a second, and streamOnce at once.
const (
	streamMuch = 2 * slowPace * streamRate
	streamOnce = 8 << 20
)

// mayStream reports whether a device has not sent too much through streams.
func (r *Receiver) mayStream(d *recvDevice) bool {
	passed := r.now.Sub(d.streamedAt).Seconds() * streamMuch
	d.streamed -= int(min(max(passed, 0), float64(d.streamed)))
	d.streamedAt = r.now
	return d.streamed < streamOnce
}

// unstream makes a block of what came through the session's stream. The ledger
// compares ranges: the bytes need not be those that the spool holds.
func (r *Receiver) unstream(s *recvSession, body []byte) ([]byte, error) {
	if s.stream == nil {
		s.stream = wire.NewStreamDecoder()
	}
	if r.enc == nil {
		r.enc = wire.NewEncoder(wire.Fast)
	}
	b, err := s.stream.Decode(body)
	if err != nil {
		return nil, err
	}
	s.device.streamed += sizeOf(b.Messages)
	out, err := r.enc.Append(nil, b)
	s.stream.Release()
	return out, err
}

// codeOf is the code of an error of the wire.
func codeOf(err error) string {
	if errors.Is(err, wire.ErrVersion) {
		return wire.CodeProtocol
	}
	return wire.CodeCorrupt
}
