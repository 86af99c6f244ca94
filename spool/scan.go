package spool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// scan is what our own reader finds in a segment. Of the blocks it keeps the
// places only.
type scan struct {
	dir     string
	files   []string         // base names that spots refer to
	ends    map[string]int64 // where the content of each log ends
	blocks  []scanned        // the readable ones, in key order
	missing []scanned        // those whose key is there and whose value is not
	last    uint64           // highest version of a complete transaction
	witness *witness         // of the head that it was; nil if there is none
	acked   func(wire.Flow) (last uint64, known bool)
	tail    bool   // behind the last complete transaction there is something unreadable
	damage  string // what was durable and is unreadable; empty if nothing is known to be
	newer   error  // a block of a format that this program does not know
	foreign bool   // there are files that neither Badger nor we make
	content bool   // there is more than the headers of empty logs

	secret secret
	vlogs  map[uint32]*vlogFile
	seen   map[string]int // place in blocks, by key
}

type vlogFile struct {
	*logFile
	file int // in scan.files
}

// scanned is one block.
type scanned struct {
	flow wire.Flow
	wire.Range
	base     uint64 // of the flow
	accepted int64  // Unix milliseconds
	version  uint64
	user     byte // of Badger's entry
	bytes    int  // encoded
	at       spot
}

// spot is where a block is: a record in a log, or bytes in a table.
type spot struct {
	file int // in scan.files
	off  int64
	size int
}

// scanSegment reads every log and, where the logs do not tell all, the tables
// of dir. What is in the files is never an error; that they cannot be opened for
// now (too many open files) is.
func scanSegment(keys *keyring, dir string) (*scan, error) {
	sc := &scan{dir: dir, acked: func(wire.Flow) (uint64, bool) { return 0, false }, ends: map[string]int64{}, vlogs: map[uint32]*vlogFile{}, seen: map[string]int{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return sc, sc.unreadable(dir, err)
	}
	if sc.secret, err = keys.of(dir); errors.Is(err, ErrLayout) {
		return sc, err
	} else if err != nil {
		sc.hurt("its keys cannot be read: %v", err)
	}
	defer func() {
		for _, v := range sc.vlogs {
			v.Close()
		}
	}()
	var mems, tables []string
	for _, e := range entries { // in order of names
		name := e.Name()
		switch {
		case isTable(name):
			tables = append(tables, name)
		case isVlog(name):
			err = sc.openVlog(name)
		case e.IsDir():
			sc.foreign = sc.foreign || name != blockerName && name != nextMemName
		case isMem(name):
			mems = append(mems, name)
		default:
			sc.foreign = sc.foreign || !ours(name)
		}
		if err != nil {
			return sc, err
		}
	}
	for i, name := range mems {
		if i > 0 && name == mems[i-1]+copySuffix && sc.ends[mems[i-1]] > logHeader {
			continue // the crash came before the original was gone
		}
		if err := sc.mem(name); err != nil {
			return sc, err
		}
	}
	if len(sc.blocks) == 0 || len(mems) == 0 || sc.damage != "" {
		for _, name := range tables { // cut off while it was sealed, or sealed
			if err := sc.table(name); err != nil {
				return sc, err
			}
		}
	}
	sc.unreferenced(len(mems) > 0 && len(tables) == 0)
	sc.settle()
	return sc, nil
}

// ours reports whether a file of a segment may be there without being read.
func ours(name string) bool {
	return slices.Contains([]string{"MANIFEST", "KEYREGISTRY", "DISCARD", "LOCK", drainedName, sealName, idsName, attemptsName, keyName}, strings.TrimSuffix(name, ".tmp")) ||
		name == "MANIFEST-REWRITE" || name == "REWRITE-KEYREGISTRY"
}

// unreadable notes a file that cannot be opened, unless that has nothing to do
// with the file.
func (sc *scan) unreadable(path string, err error) error {
	for _, busy := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, busy) {
			return diskError("read "+path, err)
		}
	}
	sc.content = true
	sc.hurt("%s cannot be read: %v", filepath.Base(path), err)
	return nil
}

func (sc *scan) hurt(format string, args ...any) {
	if sc.damage == "" {
		sc.damage = fmt.Sprintf(format, args...)
	}
}

// cause is nil if nothing durable is unreadable.
func (sc *scan) cause() error {
	if sc.damage == "" {
		return nil
	}
	return &CorruptError{Segment: sc.dir, Detail: sc.damage}
}

func (sc *scan) file(name string) int {
	sc.files = append(sc.files, name)
	return len(sc.files) - 1
}

func (sc *scan) open(name string) (*vlogFile, error) {
	path := filepath.Join(sc.dir, name)
	l, err := openLog(path, sc.secret)
	if err != nil {
		return nil, sc.unreadable(path, err)
	}
	sc.content = sc.content || l.end > logHeader
	if l.bad {
		sc.hurt("%s cannot be read everywhere", name)
	}
	return &vlogFile{l, sc.file(name)}, nil
}

func (sc *scan) openVlog(name string) error {
	l, err := sc.open(name)
	if l == nil {
		return err
	}
	id, _ := strconv.ParseUint(strings.TrimSuffix(name, ".vlog"), 10, 32)
	sc.vlogs[uint32(id)] = l
	sc.ends[name] = logHeader
	return nil
}

// mem reads a write-ahead log.
func (sc *scan) mem(name string) error {
	l, err := sc.open(name)
	if l == nil {
		return err
	}
	defer l.Close()
	open, holes := 0, 0 // entries of a transaction whose end did not come; stretches that are no records
	hole := false
	at := int64(logHeader)
	for at < l.end {
		r, ok := logRecord{}, false
		if !hole || l.plausible(at) {
			r, ok = l.record(at)
		}
		if !ok {
			if !hole {
				hole, holes = true, holes+1
			}
			at++
			continue
		}
		if hole {
			sc.hurt("%s is unreadable before byte %d", name, at)
		}
		if hole = false; r.meta&metaEnd != 0 {
			sc.last, open = max(sc.last, r.version), 0
		} else {
			open++
			sc.entry(r, spot{l.file, at, r.size})
		}
		at += int64(r.size)
		sc.ends[name] = at
	}
	sc.ends[name] = max(sc.ends[name], l.end)
	sc.tail = sc.tail || hole || open > 0
	if l.bad {
		sc.hurt("%s cannot be read everywhere", name)
	}
	return nil
}

// entry adds the block of an entry of the write-ahead log.
func (sc *scan) entry(r logRecord, at spot) {
	f, rg, err := parseKey(r.key)
	if err != nil {
		sc.hurt("%v", err)
		return
	}
	b := scanned{flow: f, Range: rg, version: r.version, user: r.user, at: at}
	value := r.value
	if r.meta&metaPointer != 0 {
		value = sc.follow(r, &b.at)
	}
	sc.add(b, value)
}

// add checks a block and keeps its place.
func (sc *scan) add(b scanned, value []byte) {
	key := string(appendKey(nil, b.flow, b.Range))
	if _, ok := sc.seen[key]; ok {
		return
	}
	h, err := checkBlock(b.flow, b.Range, value)
	switch {
	case errors.Is(err, wire.ErrVersion):
		sc.newer = err
		return
	case err != nil:
		sc.missing = append(sc.missing, b)
		return
	}
	b.base, b.accepted, b.bytes = h.Base, h.Accepted, len(value)
	sc.seen[key] = len(sc.blocks)
	sc.blocks = append(sc.blocks, b)
}

// follow reads the value that a pointer names, or nil.
func (sc *scan) follow(r logRecord, at *spot) []byte {
	if len(r.value) != pointerSize {
		return nil
	}
	id := binary.NativeEndian.Uint32(r.value)
	size, off := binary.NativeEndian.Uint32(r.value[4:]), binary.NativeEndian.Uint32(r.value[8:])
	l := sc.vlogs[id]
	if l == nil {
		return nil
	}
	v, ok := l.record(int64(off))
	if !ok || v.size != int(size) || !bytes.Equal(v.key, r.key) {
		return nil
	}
	*at = spot{l.file, int64(off), v.size}
	return v.value
}

// table looks for blocks in a table by what they begin with: its own structure
// may be damaged. Only the first version sealed small blocks in tables.
func (sc *scan) table(name string) error {
	path := filepath.Join(sc.dir, name)
	data, bad, err := readTable(path)
	if err != nil {
		return sc.unreadable(path, err)
	}
	if sc.content = true; bad {
		sc.hurt("%s cannot be read everywhere", name)
	}
	file := sc.file(name)
	for at := 0; ; {
		next := bytes.Index(data[at:], blockMagic)
		if next < 0 {
			return nil
		}
		at += next
		block, err := wire.Prefix(data[at:])
		if err != nil {
			at++
			continue
		}
		h, err := wire.ParseHeader(block)
		if err == nil {
			sc.add(scanned{flow: h.Flow, Range: h.Range(), user: userByte(data, at), at: spot{file, int64(at), len(block)}}, block)
		}
		at += len(block)
	}
}

var blockMagic = []byte{'F', 'P', 'B', wire.Version}

// userByte is what stands in a table between the key and the value at at:
// meta, user, expires.
func userByte(data []byte, at int) byte {
	if at < 3 {
		return 0
	}
	return data[at-2]
}

// readTable reads a table as it is; none was ever encrypted. bad: some pages are
// unreadable.
func readTable(path string) (data []byte, bad bool, err error) {
	l, err := openLog(path, secret{})
	if err != nil {
		return nil, false, err
	}
	defer l.Close()
	const most = 64 << 20 // far above the largest
	data = bytes.Clone(l.at(0, int(min(l.size, most))))
	return data, l.bad, nil
}

// unreferenced looks in the value logs for blocks that no key points at. One
// transaction of them is a commit that was cut off; more mean that the
// write-ahead log has lost something.
func (sc *scan) unreferenced(logsTell bool) {
	versions := map[uint64]bool{}
	for name, l := range sc.inOrder() {
		end := sc.ends[name]
		for at := int64(logHeader); at < l.end; {
			r, ok := logRecord{}, false
			if l.plausible(at) {
				r, ok = l.record(at)
			}
			if !ok {
				at++
				continue
			}
			if f, rg, err := parseKey(r.key); err == nil {
				if _, known := sc.seen[string(r.key)]; !known {
					versions[r.version] = true
					sc.add(scanned{flow: f, Range: rg, version: r.version, user: r.user, at: spot{l.file, at, r.size}}, r.value)
				}
			}
			at += int64(r.size)
			end = at
		}
		sc.ends[name] = max(end, l.end)
		if l.bad {
			sc.hurt("%s cannot be read everywhere", name)
		}
	}
	if logsTell && len(versions) > 0 {
		sc.tail = true
		if len(versions) > 1 {
			sc.hurt("the write-ahead log has lost %d transactions", len(versions))
		}
	}
}

// inOrder is the value logs by name.
func (sc *scan) inOrder() func(func(string, *vlogFile) bool) {
	return func(yield func(string, *vlogFile) bool) {
		for file, name := range sc.files {
			for _, l := range sc.vlogs {
				if l.file == file && !yield(name, l) {
					return
				}
			}
		}
	}
}

// settle sorts what was found, and decides what is missing.
func (sc *scan) settle() {
	slices.SortStableFunc(sc.blocks, func(a, b scanned) int {
		return bytes.Compare(appendKey(nil, a.flow, a.Range), appendKey(nil, b.flow, b.Range))
	})
	sc.seen = nil
	for _, b := range sc.missing {
		if b.version >= sc.last { // of the last transaction: it may never have been durable
			sc.tail = true
		} else {
			sc.hurt("%s %s is unreadable", b.flow, b.Range)
		}
	}
}
