package spool

import (
	"cmp"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// An id file holds the publisher ids of one segment. It lies beside the blocks
// while they are there, and is moved to the ids folder before they go:
//
//	"FPID" version(1) newest(8) entries(4) flows(2) {epoch(8) lane(1)}… {key(16) seq(8) at(8) flow(2)}… crc32c(4)
//
// Numbers are big-endian, times Unix milliseconds.
const (
	idMagic     = "FPID"
	idVersion   = 1
	idHeader    = 4 + 1 + 8 + 4 + 2
	idEntrySize = 16 + 8 + 8 + 2
)

type idRecord struct {
	key  idKey
	flow wire.Flow
	seq  uint64
	at   int64
}

func (s *Spool) idsDir() string { return filepath.Join(s.cfg.Dir, "ids") }

func (s *Spool) idsPath(num uint64) string {
	return filepath.Join(s.idsDir(), strconv.FormatUint(num, 10))
}

func appendIDs(dst []byte, recs []idRecord) []byte {
	nums, flows, newest := map[wire.Flow]int{}, []wire.Flow(nil), int64(0)
	for _, r := range recs {
		if _, ok := nums[r.flow]; !ok {
			nums[r.flow] = len(flows)
			flows = append(flows, r.flow)
		}
		newest = max(newest, r.at)
	}
	start := len(dst)
	dst = append(dst, idMagic...)
	dst = append(dst, idVersion)
	dst = binary.BigEndian.AppendUint64(dst, uint64(newest))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(recs)))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(flows)))
	for _, f := range flows {
		dst = append(append(dst, f.Epoch[:]...), byte(f.Lane))
	}
	for _, r := range recs {
		dst = append(dst, r.key[:]...)
		dst = binary.BigEndian.AppendUint64(dst, r.seq)
		dst = binary.BigEndian.AppendUint64(dst, uint64(r.at))
		dst = binary.BigEndian.AppendUint16(dst, uint16(nums[r.flow]))
	}
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// idNewest reads the time of the newest entry from the start of an id file.
func idNewest(path string) (int64, bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	var head [idHeader]byte
	if n, _ := f.Read(head[:]); n != idHeader || string(head[:4]) != idMagic || head[4] != idVersion {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(head[5:])), true
}

// parseIDs reads an id file; nil if it is not one or was changed.
func parseIDs(data []byte) []idRecord {
	if len(data) < idHeader+4 || string(data[:4]) != idMagic || data[4] != idVersion {
		return nil
	}
	body, sum := data[:len(data)-4], binary.BigEndian.Uint32(data[len(data)-4:])
	n, flows := int(binary.BigEndian.Uint32(body[13:])), int(binary.BigEndian.Uint16(body[17:]))
	if crc32.Checksum(body, castagnoli) != sum || n > maxIDs+1 || len(body) != idHeader+flows*9+n*idEntrySize {
		return nil
	}
	table := make([]wire.Flow, flows)
	body = body[idHeader:]
	for i := range table {
		copy(table[i].Epoch[:], body)
		table[i].Lane = wire.Lane(body[8])
		body = body[9:]
	}
	out := make([]idRecord, n)
	for i := range out {
		r := &out[i]
		copy(r.key[:], body)
		r.seq, r.at = binary.BigEndian.Uint64(body[16:]), int64(binary.BigEndian.Uint64(body[24:]))
		f := int(binary.BigEndian.Uint16(body[32:]))
		if f >= flows {
			return nil
		}
		r.flow = table[f]
		body = body[idEntrySize:]
	}
	return out
}

// writeSegmentIDs writes the ids of a head beside its blocks. It is durable
// before the segment counts as sealed.
func (s *Spool) writeSegmentIDs(g *segment) error {
	s.mu.RLock()
	parts := append([]part(nil), g.parts...)
	s.mu.RUnlock()
	recs := s.ids.within(parts, s.clock())
	if len(recs) == 0 {
		return nil
	}
	path := filepath.Join(g.dir, idsName)
	if err := os.WriteFile(path, appendIDs(nil, recs), 0o600); err != nil {
		return err
	}
	return syncPath(path)
}

// keepIDs moves the id file of a segment that is about to go to a place of its
// own, durably, and drops id files that have aged out.
func (s *Spool) keepIDs(g *segment) error {
	s.mu.RLock()
	sealed := g.sealed
	s.mu.RUnlock()
	if !sealed { // drained before that
		if err := s.writeSegmentIDs(g); err != nil {
			return err
		}
	}
	from := filepath.Join(g.dir, idsName)
	newest, ok := idNewest(from)
	if ok && s.fresh(newest) {
		if err := os.Rename(from, s.idsPath(g.num)); err != nil {
			return err
		}
		if err := syncDir(s.idsDir()); err != nil {
			return err
		}
	}
	return s.dropOldIDs()
}

// fresh reports whether a time lies within the window.
func (s *Spool) fresh(at int64) bool { return at >= s.clock()-idWindow.Milliseconds() }

// dropOldIDs removes id files of which nothing is remembered any more.
func (s *Spool) dropOldIDs() error {
	files, err := s.listIDs()
	if err != nil {
		return err
	}
	n := 0
	for _, f := range files { // newest first
		if s.fresh(f.newest) && n < maxIDs {
			n += int(f.size-idHeader) / idEntrySize
			continue
		}
		if err := removeIfThere(f.path); err != nil {
			s.cfg.Log.Warn("spool: an old file of publisher ids could not be removed", "error", err)
		}
	}
	return nil
}

type idFile struct {
	path   string
	newest int64
	size   int64
}

// listIDs returns the id files of segments that are gone, newest first.
func (s *Spool) listIDs() ([]idFile, error) {
	entries, err := os.ReadDir(s.idsDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []idFile
	for _, e := range entries {
		if _, err := strconv.ParseUint(e.Name(), 10, 64); err != nil {
			continue // not ours
		}
		f := idFile{path: filepath.Join(s.idsDir(), e.Name())}
		f.newest, _ = idNewest(f.path)
		if fi, err := e.Info(); err == nil {
			f.size = fi.Size()
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b idFile) int { return cmp.Compare(b.newest, a.newest) })
	return out, nil
}

// loadIDs fills the window at start: from the id files, and from the blocks of
// heads that a crash left (extra).
func (s *Spool) loadIDs(extra []idRecord) error {
	files, err := s.listIDs()
	if err != nil {
		return err
	}
	for _, g := range s.segments {
		f := idFile{path: filepath.Join(g.dir, idsName)}
		if at, ok := idNewest(f.path); ok {
			f.newest = at
			files = append(files, f)
		}
	}
	slices.SortFunc(files, func(a, b idFile) int { return cmp.Compare(b.newest, a.newest) })
	all := extra
	for _, f := range files {
		if !s.fresh(f.newest) || len(all) >= maxIDs+len(extra) {
			break
		}
		data, err := os.ReadFile(f.path)
		recs := parseIDs(data)
		if err != nil || recs == nil {
			s.cfg.Log.Warn("spool: a file of publisher ids is damaged; a publisher's retry from before the start may be stored twice", "file", f.path, "error", err)
		}
		all = append(all, recs...)
	}
	slices.SortStableFunc(all, func(a, b idRecord) int { return cmp.Compare(a.at, b.at) })
	now := s.clock()
	s.ids.mu.Lock()
	defer s.ids.mu.Unlock()
	for _, r := range all {
		if r.at < now-idWindow.Milliseconds() {
			continue
		}
		s.ids.push(r.key, r.flow, r.seq, min(r.at, now)) // a clock that was set back must not keep them for ever
	}
	return nil
}
