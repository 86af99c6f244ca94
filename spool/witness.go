package spool

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// lastName is a small file beside the blocks of a head that says up to where it
// was acknowledged:
//
//	"FPLA" version(1) epoch(8) lane(1) first(8) last(8) boot(8) crc32c(4)
//
// It is written after each commit and never synced: it costs no device write of
// its own. After a kill it is exact, since the page cache outlives a process;
// after a power loss it may be behind, never ahead. With it a log whose end is
// gone cannot pass for a shorter one.
const (
	lastName     = "LAST"
	witnessMagic = "FPLA\x01"
	witnessSize  = len(witnessMagic) + 8 + 1 + 8 + 8 + 8 + 4
)

type witness struct {
	flow        wire.Flow
	first, last uint64
	boot        uint64 // of the machine; 0 if unknown
}

func (w *witness) append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, witnessMagic...)
	dst = append(append(dst, w.flow.Epoch[:]...), byte(w.flow.Lane))
	for _, v := range []uint64{w.first, w.last, w.boot} {
		dst = binary.BigEndian.AppendUint64(dst, v)
	}
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// readWitness returns nil if there is none, or none that can be believed.
func readWitness(path string) *witness {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	data := make([]byte, witnessSize)
	if _, err := io.ReadFull(f, data); err != nil || string(data[:len(witnessMagic)]) != witnessMagic {
		return nil
	}
	body := data[:witnessSize-4]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(data[witnessSize-4:]) {
		return nil
	}
	w := new(witness)
	body = body[len(witnessMagic):]
	copy(w.flow.Epoch[:], body)
	w.flow.Lane = wire.Lane(body[8])
	w.first, w.last, w.boot = binary.BigEndian.Uint64(body[9:]), binary.BigEndian.Uint64(body[17:]), binary.BigEndian.Uint64(body[25:])
	if !w.flow.Lane.Valid() || w.first < 1 || w.last < w.first || w.last > wire.MaxSeq {
		return nil
	}
	return w
}

// exact reports that nothing behind last was ever acknowledged.
func (w *witness) exact() bool { return w.boot != 0 && w.boot == bootID() }

// prepareLast makes the file, with the blocks that it needs.
func (h *head) prepareLast() (err error) {
	h.last, err = os.OpenFile(filepath.Join(h.dir, lastName), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		_, err = h.last.Write(make([]byte, witnessSize))
	}
	return err
}

// noteLast writes down that recs are durable. It is only a witness: that it
// could not be written changes nothing for them.
func (h *head) noteLast(recs []record) {
	if h.last == nil || len(recs) == 0 {
		return
	}
	w := &h.witness
	if w.first == 0 {
		w.flow, w.first, w.boot = recs[0].flow, recs[0].First, bootID()
	}
	w.last = max(w.last, recs[len(recs)-1].Last)
	_, _ = h.last.WriteAt(w.append(nil), 0)
}
