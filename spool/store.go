package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// threshold is the size from which a value goes to the value log instead of
// the write-ahead log and the table.
const threshold = 4096

// geometry is the shape of a segment. Nothing in a segment ever rotates: its
// bounds are checked before a commit, with room to spare in Badger's own.
type geometry struct {
	bytes    int64 // value log: blocks of threshold bytes and more
	blocks   int   // blocks of any size
	inline   int64 // bytes of blocks below threshold
	memTable int64
	vlogFile int64 // Badger's limit, never reached
	keys     *keyring
}

// newGeometry derives the shape from the bytes of blocks of a segment. The
// formula and its constants were measured: 192 bytes cover a block's share of
// write-ahead log and skip list.
func newGeometry(bytes int64) geometry {
	g := geometry{bytes: bytes, blocks: 4096, inline: 1 << 20}
	if bytes < 4<<20 {
		g.blocks, g.inline = 1024, 256<<10
	}
	g.memTable = int64(g.blocks)*192 + 256<<10 + g.inline
	g.vlogFile = max(bytes, 1<<20) + maxAppend + maxAppend/8 // an oversized Append has a segment of its own
	return g
}

// segmentBytes is the default size of segments: 8 MiB, less in a small spool.
func segmentBytes(maxBytes int64) int64 {
	return min(max(maxBytes/64, 1<<20), 8<<20) &^ 4095
}

// headBytes is the disk space that a head takes from the moment it is opened.
func (g geometry) headBytes() int64 { return g.bytes + g.memTable + 256<<10 }

// reserveBytes covers what Badger writes on its own account when it opens or
// closes a segment: at most a table of everything in the memtable.
func (g geometry) reserveBytes() int64 { return 2 * g.memTable }

// maxTxn is how many inline bytes one transaction may hold: Badger refuses 15 %
// of the memtable.
func (g geometry) maxTxn() int64 { return g.memTable * 12 / 100 }

// options of Badger for dir, which is encrypted with key unless that is nil.
func (g geometry) options(dir string, key []byte) badger.Options {
	opt := badger.DefaultOptions(dir).
		WithSyncWrites(false).
		WithValueThreshold(threshold).
		WithValueLogFileSize(g.vlogFile).
		WithMemTableSize(g.memTable).
		WithBaseTableSize(g.memTable * 3 / 2).
		WithNumMemtables(1).
		WithNumCompactors(0).
		WithNumLevelZeroTables(1 << 20).
		WithNumLevelZeroTablesStall(1<<20 + 1).
		WithCompression(options.None).
		WithBlockCacheSize(0).
		WithIndexCacheSize(0).
		WithDetectConflicts(false).
		WithNumVersionsToKeep(1).
		WithMetricsEnabled(false).
		WithCompactL0OnClose(false).
		WithVerifyValueChecksum(true).
		WithChecksumVerificationMode(options.OnTableAndBlockRead).
		WithNumGoroutines(1).
		WithLogger(nil).
		WithBypassLockGuard(true) // the lock of the whole folder covers it
	if key != nil { // without caches Badger panics; they hold what is decrypted of a table
		opt = opt.WithEncryptionKey(key).WithBlockCacheSize(128 << 10).WithIndexCacheSize(256 << 10)
	}
	return opt
}

// key is lane, epoch, first and last sequence: what a block covers is known
// without reading it, and the blocks of a flow stand in order.
const keySize = 1 + 8 + 8 + 8

func appendKey(dst []byte, f wire.Flow, r wire.Range) []byte {
	dst = append(dst, byte(f.Lane))
	dst = append(dst, f.Epoch[:]...)
	dst = binary.BigEndian.AppendUint64(dst, r.First)
	return binary.BigEndian.AppendUint64(dst, r.Last)
}

func parseKey(k []byte) (f wire.Flow, r wire.Range, err error) {
	if len(k) != keySize || !wire.Lane(k[0]).Valid() {
		return f, r, fmt.Errorf("key %x is not that of a block", k)
	}
	f.Lane = wire.Lane(k[0])
	copy(f.Epoch[:], k[1:])
	r.First, r.Last = binary.BigEndian.Uint64(k[9:]), binary.BigEndian.Uint64(k[17:])
	if r.First < 1 || r.Last < r.First || r.Last > wire.MaxSeq {
		return f, r, fmt.Errorf("key %x covers no sequences", k)
	}
	return f, r, nil
}

// head is a segment's Badger database while it is written, with our own
// descriptors of the two files whose data we sync.
type head struct {
	dir       string
	geo       geometry
	db        *badger.DB
	vlog, mem *os.File

	// Room, owned by the lane that writes the head.
	vlogUsed int64
	inline   int64
	blocks   int

	pages     *pages // of the value log
	vlogAlloc int64  // real blocks of the value log; owned by the committer
}

// createHead makes a new database in dir, which does not exist yet, and gives
// its files real blocks for everything that will be written.
func (s *Spool) createHead(dir string, geo geometry, vlogBytes int64) (*head, error) {
	h := &head{dir: dir, geo: geo}
	err := s.step("rotate:mkdir", func() error { return os.Mkdir(dir, 0o700) })
	if err != nil {
		return nil, err
	}
	err = s.step("rotate:open", func() (err error) {
		if err = geo.keys.prepare(dir); err == nil {
			key, _ := geo.keys.current()
			h.db, err = openBadger(geo.options(dir, key))
		}
		return err
	})
	if err == nil {
		err = s.step("rotate:prealloc", func() error { return h.prepare(max(geo.bytes, vlogBytes)) })
	}
	if err == nil {
		err = geo.keys.assertEncrypted(h)
	}
	if err == nil {
		err = s.step("rotate:sync", h.syncAll)
	}
	if err != nil {
		return nil, errors.Join(err, h.abandon(), os.RemoveAll(dir))
	}
	h.pages = settle(h.vlog)
	settle(h.mem)
	return h, nil
}

// prepare opens our descriptors and preallocates both files.
func (h *head) prepare(vlogBytes int64) (err error) {
	if err = h.block(); err != nil {
		return err
	}
	if h.vlog, err = os.OpenFile(filepath.Join(h.dir, "000001.vlog"), os.O_RDWR, 0); err != nil {
		return err
	}
	if h.mem, err = os.OpenFile(filepath.Join(h.dir, memName), os.O_RDWR, 0); err != nil {
		return err
	}
	if err = preallocate(h.mem, h.geo.memTable+64<<10); err != nil {
		return err
	}
	return h.growVlog(vlogBytes + 64<<10)
}

// growVlog makes sure that size bytes of the value log have real blocks.
func (h *head) growVlog(size int64) error {
	if size <= h.vlogAlloc {
		return nil
	}
	if err := preallocate(h.vlog, size); err != nil {
		return err
	}
	h.vlogAlloc = size
	return nil
}

func (h *head) syncAll() error {
	if err := syncFiles(h.dir); err != nil {
		return err
	}
	return syncDir(filepath.Dir(h.dir))
}

// syncFiles makes every file of dir durable, and its entries.
func syncFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			continue // empty
		}
		if err := syncPath(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return syncDir(dir)
}

// record is a block on its way to the disk.
type record struct {
	flow wire.Flow
	wire.Range
	data     []byte
	accepted int64 // Unix milliseconds, by the stamps of its epoch
	ttl      ttlSpan
}

// cost is what a block of n bytes takes at most, in each of the two places.
func cost(n int) (vlog, inline int64) {
	const frame = 22 + keySize + 8 + 4 // Badger's header, key with version, checksum
	if n < threshold {
		return 0, int64(n)
	}
	return int64(n + frame), 0
}

// room reports whether blocks of together at most bytes, n in number, fit.
func (h *head) room(bytes int64, n int) bool {
	if h.blocks+n > h.geo.blocks || h.inline+int64(n)*threshold > h.geo.inline {
		return false
	}
	return h.vlogUsed+bytes <= h.geo.bytes || h.vlogUsed == 0 && h.blocks == 0
}

// halfFull reports that it is time to open the next head.
func (h *head) halfFull() bool {
	return h.vlogUsed > h.geo.bytes/2 || h.inline > h.geo.inline/2 || h.blocks > h.geo.blocks/2
}

// take books the room of records, and of a void that may come with them.
func (h *head) take(recs []record) {
	for i := range recs {
		v, in := cost(len(recs[i].data))
		h.vlogUsed, h.inline = h.vlogUsed+v, h.inline+in
	}
	h.inline += 256
	h.blocks += len(recs) + 1
}

// write commits the records in one transaction and makes them durable: the
// value log first, so that no durable key ever points at a value that is not.
func (h *head) write(s *Spool, recs []record) error {
	big := false
	err := s.step("commit:txn", func() (err error) { big, err = h.transact(recs); return err })
	if err != nil {
		return err
	}
	began := time.Now()
	if big {
		if err := s.step("commit:vlog-sync", func() error { return syncData(h.vlog) }); err != nil {
			return err
		}
	}
	if err := s.step("commit:mem-sync", func() error { return syncData(h.mem) }); err != nil {
		return err
	}
	if s.cfg.Synced != nil {
		s.cfg.Synced(time.Since(began))
	}
	h.touch(recs)
	return errors.Join(h.assertOne(), h.assertThere())
}

// touch lets go of the pages of the value log that are durable now.
func (h *head) touch(recs []record) {
	for i := range recs {
		if v, _ := cost(len(recs[i].data)); v > 0 {
			h.pages.touch(int(v))
		}
	}
}

// transact reports whether anything went to the value log.
func (h *head) transact(recs []record) (big bool, err error) {
	for i := range recs {
		big = big || len(recs[i].data) >= threshold
	}
	if err := probe(h.mem); err != nil {
		return false, err
	}
	if err := h.growVlog(h.vlogUsed + 64<<10); err != nil {
		return false, err
	}
	txn := h.db.NewTransaction(true)
	defer txn.Discard()
	keys := make([]byte, 0, len(recs)*keySize)
	for i := range recs {
		at := len(keys)
		keys = appendKey(keys, recs[i].flow, recs[i].Range)
		if err := txn.SetEntry(badger.NewEntry(keys[at:len(keys):len(keys)], recs[i].data)); err != nil {
			return false, err
		}
	}
	return big, txn.Commit()
}

// assertOne makes sure that Badger has not begun a second log of either kind:
// our syncs would miss it.
func (h *head) assertOne() error {
	for _, name := range []string{nextMemName, "000002.vlog"} {
		if _, err := os.Lstat(filepath.Join(h.dir, name)); err == nil {
			return fmt.Errorf("badger began %s in %s; the bounds of a segment are wrong", name, h.dir)
		}
	}
	return nil
}

// assertThere makes sure that the files that were synced are those that the
// next start finds: what is written into a folder that somebody has removed or
// replaced is lost, with no error from anybody.
func (h *head) assertThere() error {
	for _, f := range []*os.File{h.mem, h.vlog} {
		ours, err := f.Stat()
		if err != nil {
			return err
		}
		if found, err := os.Lstat(f.Name()); err != nil || !os.SameFile(ours, found) {
			return errors.Join(fmt.Errorf("%s is not there any more; somebody has removed or replaced it", f.Name()), err)
		}
	}
	return nil
}

// isTable, isLog: the files of a segment by kind.
func isTable(name string) bool { return strings.HasSuffix(name, ".sst") }
func isVlog(name string) bool  { return strings.HasSuffix(name, ".vlog") }
func isMem(name string) bool   { return strings.HasSuffix(strings.TrimSuffix(name, copySuffix), ".mem") }
