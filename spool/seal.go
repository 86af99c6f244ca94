package spool

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"

	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	sealName    = "SEAL"
	sealKind    = "fieldpost-spool-seal"
	sealVersion = 1
	idsName     = "IDS"
)

// seal is the sidecar that says what a closed segment holds. A segment that
// does not add up to it is never opened.
type seal struct {
	Parts []sealPart `json:"parts"`
	Files []sealFile `json:"files"`
	Block int        `json:"block_version,omitempty"` // of the blocks; absent in the first version
}

type sealPart struct {
	wire.Flow
	Ranges [][2]uint64 `json:"ranges"`
	Blocks int         `json:"blocks"`
	Bytes  int64       `json:"bytes"`
	Oldest int64       `json:"oldest"` // Unix milliseconds
	Newest int64       `json:"newest"`
	Base   uint64      `json:"base,omitempty"` // first sequence of the flow; absent in the first version
	TTL    *sealTTL    `json:"ttl,omitempty"`  // if any message has one
}

type sealTTL struct {
	Messages uint64 `json:"messages"`
	First    int64  `json:"first"` // expiry, Unix milliseconds
	Last     int64  `json:"last"`
}

// sealFile is a file of the segment. Values carry their own checksums, so of
// the value log only the length counts.
type sealFile struct {
	Name string  `json:"name"`
	Size int64   `json:"size"`
	CRC  *uint32 `json:"crc32c,omitempty"`
}

// sealHead closes a head and makes a sealed segment of it. On an error the
// folder stays for repair. errNoReserve: nothing has changed.
func (s *Spool) sealHead(g *segment) error {
	if err := s.fault("seal:begin"); err != nil {
		return err
	}
	g.use.Lock()
	defer g.use.Unlock()
	err := s.reserved(func() error {
		if err := s.step("seal:ids", func() error { return s.writeSegmentIDs(g) }); err != nil {
			return err
		}
		if err := s.step("seal:keep", g.head.keep); err != nil {
			return err // still open, and readable
		}
		g.src = nil
		if err := s.step("seal:close", g.head.release); err != nil {
			return err
		}
		g.head = nil
		s.mu.RLock()
		parts := slices.Clone(g.parts)
		s.mu.RUnlock()
		return s.writeSeal(g.dir, parts)
	})
	if err != nil {
		return err
	}
	s.becomeSealed(g)
	return nil
}

// becomeSealed: from now on g is opened by its seal. use is held exclusively.
func (s *Spool) becomeSealed(g *segment) {
	n := diskUsage(g.dir)
	g.src, g.head = nil, nil
	g.imu.Lock()
	g.index = nil
	g.imu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	g.sealed, g.disk = true, n
}

// writeSeal makes everything in dir durable and then says so.
func (s *Spool) writeSeal(dir string, parts []part) error {
	for _, name := range []string{"DISCARD", "LOCK", attemptsName, blockerName, nextMemName} { // the first holds statistics of a garbage collection that never runs
		if err := removeIfThere(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := s.step("seal:sync", func() error { return syncFiles(dir) }); err != nil {
		return err
	}
	files, err := listFiles(dir)
	if err != nil {
		return err
	}
	sl := seal{Files: files, Block: wire.Version}
	for _, p := range parts {
		sp := sealPart{Flow: p.flow, Blocks: p.blocks, Bytes: p.bytes, Oldest: p.oldest, Newest: p.newest, Base: p.base}
		if p.ttl.n > 0 {
			sp.TTL = &sealTTL{p.ttl.n, p.ttl.first, p.ttl.last}
		}
		for _, r := range p.ranges {
			sp.Ranges = append(sp.Ranges, [2]uint64{r.First, r.Last})
		}
		sl.Parts = append(sl.Parts, sp)
	}
	body, err := json.Marshal(sl)
	if err != nil {
		return err
	}
	return s.replaceFile(filepath.Join(dir, sealName), appendChecked(sealKind, sealVersion, body),
		[4]string{"seal:write", "seal:write", "seal:rename", "seal:done"})
}

// listFiles describes what Badger left in a closed segment.
func listFiles(dir string) ([]sealFile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []sealFile
	for _, e := range entries {
		name := e.Name()
		whole := isTable(name) || isMem(name) || name == "MANIFEST" || name == "KEYREGISTRY"
		if !whole && !isVlog(name) {
			continue
		}
		fi, err := e.Info()
		if err != nil {
			return nil, err
		}
		f := sealFile{Name: name, Size: fi.Size()}
		if whole {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return nil, err
			}
			sum := crc32.Checksum(data, castagnoli)
			f.CRC = &sum
		}
		out = append(out, f)
	}
	return out, nil
}

// readSeal returns the sidecar of a segment.
func readSeal(dir string) (*seal, error) {
	body, err := readChecked(filepath.Join(dir, sealName), sealKind, sealVersion)
	if err != nil {
		return nil, err
	}
	sl := new(seal)
	if err := json.Unmarshal(body, sl); err != nil {
		return nil, &CorruptError{Segment: dir, Detail: "the seal cannot be read", Err: err}
	}
	if sl.Block > wire.Version {
		return nil, fmt.Errorf("%w: %s holds blocks of format %d and this program knows %d; upgrade: install the newer Fieldpost again, or move the folder away to begin with an empty spool",
			ErrLayout, dir, sl.Block, wire.Version)
	}
	for _, p := range sl.Parts {
		last := uint64(0)
		for _, r := range p.Ranges {
			if r[0] <= last || r[1] < r[0] || r[1] > wire.MaxSeq {
				return nil, &CorruptError{Segment: dir, Detail: fmt.Sprintf("the seal lists %d-%d after %d", r[0], r[1], last)}
			}
			last = r[1]
		}
	}
	return sl, nil
}

// parts is the content that the seal promises.
func (sl *seal) parts() (out []part) {
	for _, sp := range sl.Parts {
		p := part{flow: sp.Flow, blocks: sp.Blocks, bytes: sp.Bytes, oldest: sp.Oldest, newest: sp.Newest, base: sp.Base}
		switch {
		case sp.TTL != nil:
			p.ttl = ttlSpan{sp.TTL.Messages, sp.TTL.First, sp.TTL.Last}
		case sp.Newest == 0: // of a version that did not say
			p.ttl = anyTTL
		}
		for _, r := range sp.Ranges {
			p.ranges = p.ranges.Add(wire.Range{First: r[0], Last: r[1]})
		}
		out = append(out, p)
	}
	return out
}

// verify compares the files with the seal. It comes before every open: a
// truncated table panics in a goroutine of Badger's.
func (sl *seal) verify(dir string) error {
	now, err := listFiles(dir)
	if err != nil {
		return &CorruptError{Segment: dir, Detail: "its files cannot be read", Err: err}
	}
	have := map[string]sealFile{}
	for _, f := range now {
		have[f.Name] = f
	}
	for _, want := range sl.Files {
		got, ok := have[want.Name]
		switch {
		case !ok:
			return &CorruptError{Segment: dir, Detail: want.Name + " is missing"}
		case got.Size != want.Size:
			return &CorruptError{Segment: dir, Detail: fmt.Sprintf("%s is %d bytes long, not %d", want.Name, got.Size, want.Size)}
		case want.CRC != nil && (got.CRC == nil || *got.CRC != *want.CRC):
			return &CorruptError{Segment: dir, Detail: "the checksum of " + want.Name + " is wrong"}
		}
		delete(have, want.Name)
	}
	for name := range have {
		return &CorruptError{Segment: dir, Detail: name + " does not belong to it"}
	}
	return nil
}

// openSealed opens a sealed segment for reading and lists its blocks.
func (s *Spool) openSealed(g *segment) error {
	g.use.Lock()
	defer g.use.Unlock()
	if g.src != nil {
		return nil
	}
	s.mu.RLock()
	gone, sealed, parts := g.gone, g.sealed, append([]part(nil), g.parts...)
	s.mu.RUnlock()
	if gone {
		return nil
	}
	switch {
	case g.head != nil:
		return fmt.Errorf("%w: %s is not sealed yet", ErrDiskFault, g.dir)
	case !sealed:
		return s.openLogs(g, parts)
	}
	sl, err := readSeal(g.dir)
	if err == nil {
		err = sl.verify(g.dir)
	}
	if err != nil {
		return err
	}
	return s.step("read:open", func() error { return s.openLogs(g, parts) })
}

// closeSource closes a segment that is not a head. use is held exclusively.
func (g *segment) closeSource() error {
	src := g.src
	g.src = nil
	g.imu.Lock()
	g.index = nil
	g.imu.Unlock()
	if src == nil {
		return nil
	}
	return src.Close()
}
