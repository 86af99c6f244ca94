package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

const lockName = "LOCK"

// Spool is a durable queue of blocks. Its methods may be called concurrently.
type Spool struct {
	cfg      Config
	geo      geometry
	maxBytes int64
	lock     *os.File
	time     spoolClock
	readOnly bool // nothing on the disk is changed (Inspect)
	reserve  reserve
	ids      *ids
	lanes    [wire.NumLanes]*lane
	keeper   *keeper
	last     *lastFile // the witness (witness.go); nil if there can be none
	updates  chan struct{}
	grouped  func([]record) // benchmarks only: what each commit writes
	linkUp   atomic.Bool    // as LinkUp was told

	codec   codec
	dropLog dropLog

	epochMu    sync.Mutex // one epoch is begun at a time; comes before metaMu
	once       sync.Once  // Close
	openMu     sync.Mutex // one head is opened at a time; comes before mu
	alterMu    sync.Mutex // one step of the removals at a time; comes before metaMu
	openAfter  time.Time  // no head is opened before; guarded by openMu
	openErr    error      // why; guarded by openMu
	openFaults int        // guarded by openMu

	metaMu   sync.Mutex // one meta file is written at a time; comes before mu
	expireMu sync.Mutex // one look for what has expired at a time; comes before alterMu
	repairMu sync.Mutex // one segment is put aside at a time; comes before use and mu

	mu          sync.RWMutex
	closed      bool
	epoch       wire.Epoch   // of this run; zero before its first message
	epochs      []wire.Epoch // oldest first
	flows       map[wire.Flow]*flowState
	segments    []*segment // all but the spare, oldest first
	spare       *segment   // opened in advance
	open        []*segment // sealed ones that are open for reading
	tail        tail
	high        [wire.NumLanes]uint64 // highest sequence that was ever durable
	nextSegment uint64
	mostIDs     int   // of a segment in this run
	metaBytes   int64 // of the meta file
	rest        int64 // allocated bytes of what is not a segment
	hubID       string
	token       string
	trouble     error                  // why the last message was not taken
	expired     int64                  // spool clock: when it was looked the last time
	due         int64                  // spool clock: something may have to be removed by then; 0: nothing
	full        bool                   // ErrFull was the last answer to a lane that needed a head
	dropped     map[wire.Reason]uint64 // counted with the removals; replaced, never changed
	pending     *change                // of the removals: on its way to the disk
	rules       ruleBook
	offsets     map[wire.Epoch]int64 // from the stamps of an epoch to the spool clock
	quarantined Quarantine
	recovered   []idRecord // ids found in what a crash left; Open only
	unsealed    []*segment // loose ones, for the keeper; Open only
	witnesses   []witness  // of the runs before; Open only
	old         *meta      // as it was found; Open only
	unsaved     bool       // the meta file has to be written; Open only
}

// Open opens the spool in cfg.Dir, or makes one. It always succeeds on a
// damaged spool: what cannot be read is put aside and reported. It fails if
// the folder is in use (ErrLocked), was written by a newer version
// (ErrLayout), needs a key that is not given (ErrKey), or cannot be written.
func Open(cfg Config) (*Spool, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("spool: make the folder: %w", err)
	}
	path := filepath.Join(cfg.Dir, lockName)
	if fi, err := os.Lstat(path); err == nil && fi.IsDir() { // somebody's
		if err := os.Rename(path, fmt.Sprintf("%s-%d", path, cfg.Now().UnixNano())); err != nil {
			return nil, fmt.Errorf("spool: lock the folder: %w", err)
		}
	}
	lock, err := lockFolder(path)
	if err != nil {
		return nil, fmt.Errorf("spool: lock the folder: %w", err)
	}
	s := &Spool{cfg: cfg, lock: lock, time: spoolClock{host: *cfg.host}, offsets: map[wire.Epoch]int64{}, ids: newIDs(), updates: make(chan struct{}, 1),
		flows: map[wire.Flow]*flowState{}, tail: tail{blocks: map[tailKey][]byte{}},
		dropped: map[wire.Reason]uint64{}}
	if err := s.load(); err != nil {
		if s.last != nil {
			s.last.close()
		}
		lock.Close()
		return nil, fmt.Errorf("spool: open %s: %w", cfg.Dir, err)
	}
	s.keeper = newKeeper(s)
	for _, g := range s.unsealed {
		s.keeper.retire(g)
	}
	s.unsealed, s.witnesses, s.old = nil, nil, nil
	go s.keeper.run()
	for l := range s.lanes {
		s.lanes[l] = newLane(s, wire.Lane(l))
	}
	s.keeper.wantTrim()
	s.keeper.wantExpire()
	s.keeper.wantSpare()
	return s, nil
}

// load brings back what the last run left.
func (s *Spool) load() error {
	if err := s.size(); err != nil {
		return err
	}
	s.geo.keys.found = map[string]string{}
	if err := s.geo.keys.check(s.cfg.Dir); err != nil {
		return err
	}
	m, metaErr, segs, err := s.look()
	if err != nil {
		return err // nothing was changed
	}
	if m != nil {
		s.time.begin(m.Clock)
		s.takeMeta(m)
	} else {
		s.time.begin(metaClock{})
	}
	if err := s.tidy(); err != nil {
		return err
	}
	if metaErr != nil {
		s.putFileAside(s.metaPath(), fmt.Errorf("the segments tell the rest, and the hub is pinned anew: %w", metaErr))
	}
	if err := s.loadSegments(segs); err != nil {
		return err
	}
	s.geo.keys.found = nil // from now on folders change
	s.preferLater()
	s.noteGaps()
	s.settleOffsets()
	if err := s.loadIDs(s.recovered); err != nil {
		return err
	}
	s.recovered = nil
	if err := s.reserve.fill(); err != nil { // no head is opened before it is there
		s.cfg.Log.Warn("spool: the reserve could not be taken; no new segment before it is", "error", err)
	}
	if err := s.dropOldIDs(); err != nil {
		return err
	}
	s.measureRest()
	if s.unsaved {
		if err := s.step("quarantine:meta", s.saveMeta); err != nil {
			s.cfg.Log.Error("spool: the count of what is lost could not be written for now", "error", err)
		}
	}
	return syncDir(s.cfg.Dir)
}

// tidy makes room for what is ours where somebody put something else.
func (s *Spool) tidy() error {
	if fi, err := os.Lstat(s.idsDir()); err == nil && !fi.IsDir() {
		s.putFileAside(s.idsDir(), errors.New("a file is in the place of the folder of publisher ids"))
	}
	if fi, err := os.Lstat(s.reserve.path); err == nil && !fi.Mode().IsRegular() {
		s.putFileAside(s.reserve.path, errors.New("it is no file"))
	}
	last := filepath.Join(s.cfg.Dir, lastName)
	if fi, err := os.Lstat(last); err == nil && !fi.Mode().IsRegular() {
		s.putFileAside(last, errors.New("it is no file"))
	}
	if err := s.openLast(); err != nil {
		s.cfg.Log.Warn("spool: damage to the last commits would go unnoticed", "error", err)
	}
	return os.MkdirAll(s.idsDir(), 0o700)
}

// size decides on the limits.
func (s *Spool) size() error {
	s.maxBytes = s.cfg.MaxBytes
	if s.maxBytes == 0 {
		_, total, err := freeBytes(s.cfg.Dir)
		if err != nil {
			return err
		}
		s.maxBytes = max(min(1<<30, total/4), minSpool)
	}
	bytes := s.cfg.SegmentBytes
	if bytes == 0 {
		bytes = segmentBytes(s.maxBytes)
	}
	s.geo = newGeometry(bytes)
	if s.cfg.shape != nil {
		s.geo = *s.cfg.shape
	}
	s.geo.keys = newKeyring(s.cfg.Keys)
	s.reserve = reserve{path: filepath.Join(s.cfg.Dir, reserveName), size: s.geo.reserveBytes()}
	return nil
}

func newLane(s *Spool, name wire.Lane) *lane {
	l := &lane{s: s, name: name, next: s.high[name] + 1, enough: 2, wake: make(chan struct{}, 1), quit: make(chan struct{}),
		commits: make(chan *group), idle: make(chan struct{}, 1)}
	if s.cfg.MemoryFirst {
		l.mem = newMemory(l)
	}
	l.done.Add(2)
	go l.run()
	go l.commitLoop()
	return l
}

// beginEpoch returns this run's epoch. The first call draws it and makes it
// durable, so that its place among the epochs is known whatever happens.
func (s *Spool) beginEpoch() (wire.Epoch, error) {
	s.epochMu.Lock()
	defer s.epochMu.Unlock()
	s.mu.RLock()
	e := s.epoch
	s.mu.RUnlock()
	if !e.IsZero() {
		return e, nil
	}
	if err := s.fault("epoch:begin"); err != nil {
		return e, diskError("begin an epoch", err)
	}
	e = wire.NewEpoch()
	s.mu.Lock()
	s.epochs = append(s.epochs, e)
	s.offsets[e] = s.time.offset()
	s.mu.Unlock()
	if err := s.saveMeta(); err != nil {
		s.mu.Lock()
		s.epochs = slices.DeleteFunc(s.epochs, func(o wire.Epoch) bool { return o == e })
		delete(s.offsets, e)
		s.trouble = err
		s.mu.Unlock()
		return wire.Epoch{}, err
	}
	s.mu.Lock()
	s.epoch = e
	s.mu.Unlock()
	return e, nil
}

// forgetEpochs drops the oldest epochs of which nothing is held, beyond
// maxEpochs. mu is held.
func (s *Spool) forgetEpochs() {
	excess := len(s.epochs) - maxEpochs
	s.epochs = slices.DeleteFunc(s.epochs, func(e wire.Epoch) bool {
		if excess <= 0 || e == s.epoch {
			return false
		}
		for l := range wire.Lane(wire.NumLanes) {
			if fl := s.flows[wire.Flow{Epoch: e, Lane: l}]; fl != nil {
				if _, held := fl.firstHeld(); held || len(fl.segs) > 0 {
					return false
				}
			}
		}
		for l := range wire.Lane(wire.NumLanes) {
			delete(s.flows, wire.Flow{Epoch: e, Lane: l})
		}
		delete(s.offsets, e)
		excess--
		return true
	})
}

// clock is the wall clock of the start plus the time since: setting the clock
// while the agent runs does not shorten the window of the ids.
func (s *Spool) clock() int64 { return s.time.stamp() }

// Stats is a snapshot.
func (s *Spool) Stats() Stats {
	s.expireSoon()
	st := Stats{DiskUsed: s.diskUsed(), DiskMax: s.maxBytes, Dropped: map[wire.Reason]uint64{}}
	st.DiskFree, _, _ = freeBytes(s.cfg.Dir) // 0 if unknown
	s.mu.RLock()
	defer s.mu.RUnlock()
	st.Epoch, st.Quarantine = s.epoch, s.quarantined
	st.Quarantine.Messages = s.dropped[wire.ReasonQuarantine] // corrected by what the hub has
	st.Quarantine.Reports = slices.Clone(s.quarantined.Reports)
	for r, n := range s.dropped {
		st.Dropped[r] = n
	}
	st.Keys = s.keyUses()
	for _, g := range s.segments {
		if g.gone {
			continue
		}
		for i := range g.parts {
			s.countPart(&st, &g.parts[i])
		}
	}
	s.countMemory(&st)
	return st
}

// countPart adds what is neither received nor removed of a part. Bytes are in
// proportion.
func (s *Spool) countPart(st *Stats, p *part) {
	fl := s.flows[p.flow]
	open, first := uint64(0), uint64(0)
	for _, r := range p.ranges {
		for _, r := range fl.received.Missing(r) {
			for _, r := range fl.gone.missing(r) {
				if open == 0 {
					first = r.First
				}
				open += r.Len()
				for _, n := range fl.noted.within(r) {
					open -= min(open, n.n)
				}
			}
		}
	}
	if open == 0 {
		return
	}
	bytes := int64(float64(p.bytes) * float64(open) / float64(p.ranges.Len()))
	ln := &st.Lanes[p.flow.Lane]
	ln.Messages += open
	ln.Bytes += bytes
	st.LiveBytes += bytes
	born := s.bornAt(p.flow.Epoch, p.ages.of(first, p.oldest))
	if s.cfg.MaxAge > 0 { // what is older was removed
		born = max(born, s.time.now()-s.cfg.MaxAge.Milliseconds())
	}
	if at := s.wallOf(born); ln.Oldest.IsZero() || at.Before(ln.Oldest) {
		ln.Oldest = at
	}
}

// Close finishes what was accepted, seals and releases everything. A second
// call waits for the first and returns nil.
func (s *Spool) Close() (err error) {
	s.once.Do(func() { err = s.close() })
	return err
}

func (s *Spool) close() error {
	for _, l := range s.lanes { // refuse new work, finish the old
		l.mu.Lock()
		l.closing = true
		l.mu.Unlock()
		close(l.quit)
	}
	var err error
	for _, l := range s.lanes {
		l.done.Wait()
		err = errors.Join(err, l.lostErr)
		if l.seg != nil {
			s.keeper.retire(l.seg)
		}
	}
	s.keeper.close()
	s.mu.Lock()
	s.closed = true
	for _, fl := range s.flows {
		for _, w := range fl.waiters {
			close(w.ch)
		}
		fl.waiters = nil
	}
	open := s.open
	s.open = nil
	s.mu.Unlock()
	err = errors.Join(err, s.keepMemoryIDs(), s.dropSpare())
	for _, g := range open {
		s.closeSealed(g)
	}
	if merr := s.reserved(s.saveMeta); errors.Is(merr, ErrDiskFull) {
		s.cfg.Log.Warn("spool: the last counts were not written; the segments hold everything else", "error", merr)
	} else {
		err = errors.Join(err, merr)
	}
	if s.last != nil {
		s.last.close() // never synced
	}
	if err = errors.Join(err, s.lock.Close()); err != nil {
		return fmt.Errorf("spool: close %s: %w", s.cfg.Dir, err)
	}
	return nil
}
