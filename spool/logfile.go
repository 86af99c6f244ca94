package spool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
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
	maxRecord     = 2 * maxAppend // far above the largest; a damaged size must not ask for more
)

const endKeySize = len("!badger!txn") + versionSize

// logFile reads one log through a window, so that a segment never is in memory
// as a whole.
type logFile struct {
	f      *os.File
	size   int64
	end    int64      // behind the last byte that is not zero
	cipher *logCipher // nil: the records are in the clear
	bad    bool       // some pages cannot be read; they count as 0xff

	win  []byte // of the file, from base on
	base int64
}

const logWindow = 256 << 10

// openLog is the only place at which logs are opened; what is read of them is
// decrypted.
func openLog(path string, s secret) (*logFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = errors.New(path + " is not a file")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	l := &logFile{f: f, size: fi.Size()}
	l.end = l.contentEnd()
	l.cipher = newLogCipher(l.at(0, logHeader), s)
	return l, nil
}

func (l *logFile) Close() error { return l.f.Close() }

// contentEnd looks backwards for the last byte that is not zero. What was
// preallocated and never written is skipped without reading it.
func (l *logFile) contentEnd() int64 {
	for end := dataEnd(l.f, l.size); end > 0; {
		from := max(0, end-logWindow)
		page := bytes.TrimRight(l.at(from, int(end-from)), "\x00")
		if len(page) > 0 {
			return from + int64(len(page))
		}
		end = from
	}
	return 0
}

// at returns up to n bytes from off on, valid until the next call.
func (l *logFile) at(off int64, n int) []byte {
	n = int(min(int64(n), l.size-off))
	if n <= 0 {
		return nil
	}
	if from := off - l.base; from < 0 || from+int64(n) > int64(len(l.win)) {
		l.load(off, n)
	}
	from := off - l.base
	return l.win[from : from+int64(n) : from+int64(n)]
}

func (l *logFile) load(off int64, n int) {
	n = int(min(int64(max(n, logWindow)), l.size-off))
	if cap(l.win) < n {
		l.win = make([]byte, n)
	}
	l.win, l.base = l.win[:n], off
	if got, err := l.f.ReadAt(l.win, off); err != nil && got < n {
		l.loadPages(off)
	}
}

// loadPages fills the window page by page around what cannot be read.
func (l *logFile) loadPages(off int64) {
	const page = 4096
	for from := 0; from < len(l.win); {
		to := min(len(l.win), int((off+int64(from))/page+1)*page-int(off))
		part := l.win[from:to]
		if got, err := l.f.ReadAt(part, off+int64(from)); err != nil && !(errors.Is(err, io.EOF) && got == len(part)) {
			for i := range part {
				part[i] = 0xff // not zero: something may have been there
			}
			l.bad = true
		}
		from = to
	}
}

type logRecord struct {
	meta    byte
	user    byte
	key     []byte // without version
	version uint64
	value   []byte
	size    int
}

// recordSize is the length of the record that may start with head; 0: none does.
func recordSize(head []byte) (klen, vlen uint64, at, size int) {
	if len(head) < 5 {
		return 0, 0, 0, 0
	}
	at = 2
	var n [3]uint64
	for i := range n {
		v, w := binary.Uvarint(head[at:])
		if w <= 0 {
			return 0, 0, 0, 0
		}
		n[i], at = v, at+w
	}
	klen, vlen = n[0], n[1]
	if klen < versionSize || klen > 64 || vlen > maxRecord || n[2] != 0 {
		return 0, 0, 0, 0
	}
	return klen, vlen, at, at + int(klen+vlen) + 4
}

// record reads the record at off; ok is false if there is none. It is valid
// until the next read.
func (l *logFile) record(off int64) (r logRecord, ok bool) {
	klen, _, at, size := recordSize(l.at(off, maxRecordHead))
	if size == 0 || int64(size) > l.size-off {
		return r, false
	}
	data := l.at(off, size)
	end := size - 4
	if crc32.Checksum(data[:end], castagnoli) != binary.BigEndian.Uint32(data[end:]) {
		return r, false
	}
	kv := data[at:end:end]
	if l.cipher != nil {
		kv = bytes.Clone(kv)
		l.cipher.crypt(off, kv)
	}
	key, value := kv[:klen], kv[klen:]
	r = logRecord{meta: data[0], user: data[1], key: key[:len(key)-versionSize], value: value, size: size}
	r.version = ^binary.BigEndian.Uint64(key[len(key)-versionSize:])
	return r, true
}

// plausible is a cheap test whether a record of ours may start at off.
func (l *logFile) plausible(off int64) bool {
	head := l.at(off, 3)
	return len(head) == 3 && head[0]&^(metaPointer|metaTxn|metaEnd) == 0 &&
		(head[2] == blockKeySize || head[2] == byte(endKeySize))
}
