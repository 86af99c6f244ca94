package spool

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// lastName is a small file that says up to where each lane was acknowledged in
// this run, and in which segment. Each lane has a slot of its own:
//
//	"FPLA" version(1) epoch(8) lane(1) segment(8) first(8) last(8) boot(8) crc32c(4)
//
// It is written after each commit and never synced, so it costs no device write
// of its own. After a kill it is exact, since the page cache outlives a
// process; after a power loss it may be behind, never ahead. With it a log
// whose end is gone cannot pass for a shorter one.
const (
	lastName     = "LAST"
	witnessMagic = "FPLA\x01"
	witnessSize  = len(witnessMagic) + 8 + 1 + 4*8 + 4
	witnessSlot  = 64
)

// witness is one slot.
type witness struct {
	flow        wire.Flow
	segment     uint64 // the head; 0: there is none yet
	first, last uint64 // that it took; last is first-1 if nothing
	boot        uint64 // of the machine; 0 if unknown
}

func (w *witness) append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, witnessMagic...)
	dst = append(append(dst, w.flow.Epoch[:]...), byte(w.flow.Lane))
	for _, v := range []uint64{w.segment, w.first, w.last, w.boot} {
		dst = binary.BigEndian.AppendUint64(dst, v)
	}
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

func parseWitness(data []byte) (w witness, ok bool) {
	if len(data) < witnessSize || string(data[:len(witnessMagic)]) != witnessMagic ||
		crc32.Checksum(data[:witnessSize-4], castagnoli) != binary.BigEndian.Uint32(data[witnessSize-4:]) {
		return w, false
	}
	data = data[len(witnessMagic):]
	copy(w.flow.Epoch[:], data)
	w.flow.Lane = wire.Lane(data[8])
	n := [4]uint64{}
	for i := range n {
		n[i] = binary.BigEndian.Uint64(data[9+8*i:])
	}
	w.segment, w.first, w.last, w.boot = n[0], n[1], n[2], n[3]
	return w, w.flow.Lane.Valid() && w.first >= 1 && w.last >= w.first-1 && w.last <= wire.MaxSeq
}

// readWitnesses returns those that can be believed. The file is only a second
// opinion: without it, damage to the end of a log may go unnoticed.
func readWitnesses(path string) (out []witness) {
	fi, err := os.Lstat(path)
	if err != nil || !fi.Mode().IsRegular() || fi.Size() > 4096 {
		return nil
	}
	data, err := os.ReadFile(path)
	for ; err == nil && len(data) > 0; data = data[min(witnessSlot, len(data)):] {
		if w, ok := parseWitness(data); ok {
			out = append(out, w)
		}
	}
	return out
}

// exact reports that nothing behind last was ever acknowledged.
func (w *witness) exact() bool { return w.boot != 0 && w.boot == bootID() }

// openLast makes the file, with the blocks that it needs. What it says of the
// runs before stays until a lane is used.
func (s *Spool) openLast() error {
	f, err := os.OpenFile(filepath.Join(s.cfg.Dir, lastName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	const size = wire.NumLanes * witnessSlot
	s.last = &lastFile{f: f}
	if err := writeZeros(f, size); err != nil {
		return err
	}
	s.last.mapped = mapShared(f, size)
	return nil
}

// lastFile is written through a mapping where there are some: a write would set
// the time of the file, and so put its inode into the journal of every commit.
type lastFile struct {
	f      *os.File
	mapped []byte // nil: none
}

func (l *lastFile) write(data []byte, off int) {
	if l.mapped == nil {
		_, _ = l.f.WriteAt(data, int64(off))
		return
	}
	defer func() { _ = recover() }() // the disk is gone; the commits notice it
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	copy(l.mapped[off:], data)
}

// close syncs nothing.
func (l *lastFile) close() {
	unmap(l.mapped)
	l.f.Close()
}

// noteBegun writes down that nothing of the lane's flow is acknowledged yet.
func (l *lane) noteBegun() {
	if l.s.last != nil {
		w := witness{flow: l.flow, first: l.base, last: l.base - 1, boot: bootID()}
		l.s.last.write(w.append(nil), int(l.name)*witnessSlot)
	}
}

// noteLast writes down that recs are durable in g. It is only a witness: that
// it could not be written changes nothing for them.
func (l *lane) noteLast(g *segment, recs []record) {
	if l.s.last == nil || len(recs) == 0 {
		return
	}
	w := &l.witness
	if w.segment != g.num || w.flow != recs[0].flow {
		*w = witness{flow: recs[0].flow, segment: g.num, first: recs[0].First, boot: bootID()}
	}
	w.last = max(w.last, recs[len(recs)-1].Last)
	l.s.last.write(w.append(nil), int(l.name)*witnessSlot)
}
