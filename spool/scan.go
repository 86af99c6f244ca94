package spool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Our own reader of Badger's logs (v4): it never panics, changes nothing, and
// goes on behind damage, where Badger cuts off or crashes. A log is a header of
// 20 bytes and records:
//
//	meta(1) user(1) klen(uvarint) vlen(uvarint) expires(uvarint) key value crc32c(4)
//
// A key ends in 8 bytes of version, inverted. In the write-ahead log (.mem) the
// entries of a transaction are followed by one that ends it; a large value is
// a pointer into the value log (.vlog), whose records stand for themselves.
const (
	logHeader     = 20
	metaPointer   = 1 << 1
	metaTxn       = 1 << 6
	metaEnd       = 1 << 7
	pointerSize   = 12
	versionSize   = 8
	blockKeySize  = keySize + versionSize
	maxRecordHead = 2 + 3*binary.MaxVarintLen64
)

var endKey = []byte("!badger!txn")

type logRecord struct {
	meta    byte
	key     []byte // without version
	version uint64
	value   []byte
	size    int
}

// parseRecord reads the record at the start of data; ok is false if there is none.
func parseRecord(data []byte) (r logRecord, ok bool) {
	if len(data) < 5 {
		return r, false
	}
	at := 2
	var n [3]uint64
	for i := range n {
		v, w := binary.Uvarint(data[at:])
		if w <= 0 {
			return r, false
		}
		n[i], at = v, at+w
	}
	klen, vlen := n[0], n[1]
	if klen < versionSize || klen > 64 || vlen > uint64(len(data)) || uint64(at)+klen+vlen+4 > uint64(len(data)) {
		return r, false
	}
	end := at + int(klen+vlen)
	if crc32.Checksum(data[:end], castagnoli) != binary.BigEndian.Uint32(data[end:]) {
		return r, false
	}
	key := data[at : at+int(klen)]
	r = logRecord{meta: data[0], key: key[:len(key)-versionSize], value: data[at+int(klen) : end], size: end + 4}
	r.version = ^binary.BigEndian.Uint64(key[len(key)-versionSize:])
	return r, true
}

// plausible is a cheap test whether a record of ours may start here.
func plausible(data []byte) bool {
	return len(data) > 3 && data[1] == 0 && (data[2] == blockKeySize || data[2] == byte(len(endKey)+versionSize))
}

// scan is what can be read of a segment without Badger.
type scan struct {
	blocks  []scanned // in order of versions
	last    uint64    // highest version of a complete transaction
	tables  bool      // there are tables, which this reader does not read
	live    bool      // there is a write-ahead log
	mems    bool      // … with content
	damaged bool      // something is unreadable that was durable
	missing []scanned // blocks whose key is there and whose value is not
}

type scanned struct {
	record
	version uint64
}

// scanSegment reads every log of dir. With all set, values count that no key
// points at: the tables that might are damaged.
func scanSegment(keys *keyring, dir string, all bool) (*scan, error) {
	secret, err := keys.of(dir)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	sc := new(scan)
	vlogs := map[uint32][]byte{}
	var mems [][]byte
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case isTable(e.Name()):
			sc.tables = true
		case isVlog(e.Name()):
			id, _ := strconv.ParseUint(e.Name()[:len(e.Name())-len(".vlog")], 10, 32)
			if vlogs[uint32(id)], err = readLog(path, secret); err != nil {
				return nil, err
			}
		case isMem(e.Name()):
			data, err := readLog(path, secret)
			if err != nil {
				return nil, err
			}
			sc.mems = sc.mems || len(data) > logHeader
			sc.live = sc.live || len(data) > 0
			mems = append(mems, data)
		}
	}
	for _, m := range mems {
		sc.mem(m, vlogs)
	}
	extra, versions := sc.unreferenced(vlogs)
	if all || !sc.tables && (sc.damaged || versions > 1 || versions > 0 && !sc.live) {
		sc.damaged = true
		sc.blocks = append(sc.blocks, extra...)
	}
	sortBlocks(sc.blocks)
	return sc, nil
}

func sortBlocks(bs []scanned) {
	slices.SortStableFunc(bs, func(a, b scanned) int {
		return bytes.Compare(appendKey(nil, a.flow, a.Range), appendKey(nil, b.flow, b.Range))
	})
}

// promised is what the segment held as far as is known, or nil.
func (sc *scan) promised() []part {
	if len(sc.missing) == 0 {
		return nil
	}
	all := slices.Concat(sc.blocks, sc.missing)
	sortBlocks(all)
	return partsOf(all)
}

// readLog reads a log without the zeros behind its content, decrypted.
func readLog(path string, s secret) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	data = bytes.TrimRight(data, "\x00")
	if err == nil && logKey(data) != 0 {
		whole := append(data, 0, 0, 0, 0) // a checksum may end in zeros
		decryptLog(whole, s)
		data = bytes.TrimRight(whole, "\x00")
	}
	return data, err
}

// mem reads a write-ahead log.
func (sc *scan) mem(data []byte, vlogs map[uint32][]byte) {
	data = append(data, 0, 0, 0, 0) // a checksum may end in zeros, which were trimmed
	var txn []logRecord
	skipping := false // until the end of a transaction whose start is unreadable
	resumed := false
	for at := logHeader; at < len(data); {
		r, ok := logRecord{}, false
		if !skipping || plausible(data[at:]) {
			r, ok = parseRecord(data[at:])
		}
		if !ok {
			txn, skipping = nil, true
			at++
			continue
		}
		at += r.size
		switch {
		case r.meta&metaEnd == 0:
			txn = append(txn, r)
			continue
		case skipping:
			skipping, resumed = false, true
		default:
			sc.damaged = sc.damaged || resumed // whole transactions behind unreadable bytes
			sc.commit(txn, vlogs)
		}
		txn = nil
	}
	sc.settle()
}

// commit adds the blocks of a complete transaction. A value that is missing
// gives a block without data.
func (sc *scan) commit(txn []logRecord, vlogs map[uint32][]byte) {
	for _, r := range txn {
		f, rg, err := parseKey(r.key)
		if err != nil {
			sc.damaged = true
			continue
		}
		value := r.value
		if r.meta&metaPointer != 0 {
			value = follow(r, vlogs)
		}
		if _, err := checkBlock(f, rg, value); err != nil {
			value = nil
		}
		sc.blocks = append(sc.blocks, scanned{record{flow: f, Range: rg, data: value}, r.version})
		sc.last = max(sc.last, r.version)
	}
}

// follow reads the value that a pointer names, or nil.
func follow(r logRecord, vlogs map[uint32][]byte) []byte {
	if len(r.value) != pointerSize {
		return nil
	}
	id := binary.NativeEndian.Uint32(r.value)
	size, off := binary.NativeEndian.Uint32(r.value[4:]), binary.NativeEndian.Uint32(r.value[8:])
	data := vlogs[id]
	if uint64(off) > uint64(len(data)) || size > 2*maxAppend {
		return nil
	}
	part := append([]byte(nil), data[off:min(uint64(off)+uint64(size), uint64(len(data)))]...)
	part = append(part, make([]byte, int(size)-len(part))...) // zeros that were trimmed
	v, ok := parseRecord(part)
	if !ok || !bytes.Equal(v.key, r.key) {
		return nil
	}
	return v.value
}

// settle drops what the last transaction could not bring to the disk: it was
// never acknowledged. The same in an earlier one is damage.
func (sc *scan) settle() {
	torn := false
	for _, b := range sc.blocks {
		switch {
		case b.data != nil:
		case b.version == sc.last:
			torn = true
		default:
			sc.missing, sc.damaged = append(sc.missing, b), true
		}
	}
	sc.blocks = slices.DeleteFunc(sc.blocks, func(b scanned) bool {
		return b.data == nil || torn && b.version == sc.last
	})
}

// unreferenced looks in the value logs for blocks that no key points at. Those
// of one transaction are a commit that was cut off; more mean that the
// write-ahead log has lost something.
func (sc *scan) unreferenced(vlogs map[uint32][]byte) (extra []scanned, versions int) {
	known := map[string]bool{}
	for _, b := range sc.blocks {
		known[string(appendKey(nil, b.flow, b.Range))] = true
	}
	seen := map[uint64]bool{}
	for _, data := range vlogs {
		data = append(data, 0, 0, 0, 0)
		for at := logHeader; at < len(data); {
			r, ok := logRecord{}, false
			if plausible(data[at:]) {
				r, ok = parseRecord(data[at:])
			}
			if !ok {
				at++
				continue
			}
			at += r.size
			f, rg, err := parseKey(r.key)
			if err != nil || known[string(r.key)] {
				continue
			}
			if _, err := checkBlock(f, rg, r.value); err != nil {
				continue
			}
			extra = append(extra, scanned{record{flow: f, Range: rg, data: r.value}, r.version})
			seen[r.version] = true
		}
	}
	return extra, len(seen)
}
