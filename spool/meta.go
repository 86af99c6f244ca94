package spool

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	metaName    = "meta"
	metaKind    = "fieldpost-spool"
	metaVersion = 1 // of the whole folder: a newer one is refused

	maxEpochs = 256 // known after they are delivered, for WaitDelivered
)

// meta is what must outlive the segments: who numbered what, up to where, and
// the two facts of the session. It is a few KB, replaced as a whole.
type meta struct {
	HubID       string               `json:"hub_id,omitempty"`
	Token       string               `json:"token,omitempty"`
	NextSegment uint64               `json:"next_segment"`
	Lanes       map[wire.Lane]uint64 `json:"lanes"`  // highest sequence assigned, whatever the epoch
	Epochs      []metaEpoch          `json:"epochs"` // oldest first
	Dropped     map[string]uint64    `json:"dropped,omitempty"`
	Clock       metaClock            `json:"clock"`
	LastRule    uint64               `json:"last_rule,omitempty"`
	Rules       []rule               `json:"rules,omitempty"` // purges by subject
	Quarantine  Quarantine           `json:"quarantine"`
}

type metaEpoch struct {
	Epoch  wire.Epoch             `json:"epoch"`
	Offset *int64                 `json:"offset,omitempty"` // from its stamps to the spool clock
	Lanes  map[wire.Lane]metaLane `json:"lanes,omitempty"`
}

type metaLane struct {
	Base    uint64      `json:"base"`
	Last    uint64      `json:"last"`
	Lost    [][2]uint64 `json:"lost,omitempty"` // by damage; read only, from an older version
	Removed [][2]uint64 `json:"removed"`        // with the segments that held them; absent in the first version
	Gone    []metaGone  `json:"gone,omitempty"`
	Notes   []metaNote  `json:"notes,omitempty"`
}

// metaGone and metaNote are goneRange and note.
type metaGone struct {
	Seq    [2]uint64   `json:"seq"`
	Reason wire.Reason `json:"reason"`
	Sent   uint64      `json:"sent,omitempty"`
}

type metaNote struct {
	Seq     [2]uint64 `json:"seq"`
	Is      metaState `json:"is"`
	Sent    metaState `json:"sent,omitzero"`
	Removed uint64    `json:"removed"`
}

type metaState struct {
	At    int64  `json:"at"`
	Rules uint64 `json:"rules,omitempty"`
}

func (s *Spool) metaPath() string { return filepath.Join(s.cfg.Dir, metaName) }

// readMeta reads the meta file and changes nothing. It is nil if there is none.
func readMeta(path string) (*meta, error) {
	body, err := readChecked(path, metaKind, metaVersion)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	m := new(meta)
	if err == nil {
		err = json.Unmarshal(body, m)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// takeMeta goes on from what the meta file says.
func (s *Spool) takeMeta(m *meta) {
	s.rules = ruleBook{m.LastRule, m.Rules}
	s.hubID, s.token, s.nextSegment = m.HubID, m.Token, m.NextSegment
	s.quarantined = m.Quarantine
	for _, r := range wire.Reasons() {
		if n := m.Dropped[r.String()]; n > 0 {
			s.dropped[r] = n
		}
	}
	for l, seq := range m.Lanes {
		s.high[l] = seq
	}
	for _, e := range m.Epochs {
		s.epochs = append(s.epochs, e.Epoch)
		if e.Offset != nil {
			s.offsets[e.Epoch] = *e.Offset
		}
		for l, ml := range e.Lanes {
			fl := s.flow(wire.Flow{Epoch: e.Epoch, Lane: l})
			fl.base, fl.last, fl.removals = ml.Base, ml.Last, ml.removals()
			fl.removed, fl.untold = rangesOf(ml.Removed), ml.Removed == nil
			s.high[l] = max(s.high[l], ml.Last)
		}
	}
}

// rangesOf and pairsOf turn ranges from and into what stands in our files.
func rangesOf(pairs [][2]uint64) (out wire.Ranges) {
	for _, r := range pairs {
		out = out.Add(wire.Range{First: r[0], Last: r[1]})
	}
	return out
}

func pairsOf(rs wire.Ranges) [][2]uint64 {
	out := make([][2]uint64, 0, len(rs))
	for _, r := range rs {
		out = append(out, [2]uint64{r.First, r.Last})
	}
	return out
}

// saveMeta makes the present state durable. s.mu must not be held; metaMu
// keeps an older state from replacing a newer one.
func (s *Spool) saveMeta() error {
	if s.readOnly {
		return nil
	}
	s.metaMu.Lock()
	defer s.metaMu.Unlock()
	s.mu.Lock()
	m := s.metaNow()
	s.mu.Unlock()
	body, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	err = s.replaceFile(s.metaPath(), appendChecked(metaKind, metaVersion, body),
		[4]string{"meta:write", "meta:sync", "meta:rename", "meta:folder"})
	if err != nil {
		return diskError("write "+s.metaPath(), err)
	}
	s.mu.Lock()
	s.metaBytes = int64(len(body)) + 8<<10
	s.mu.Unlock()
	s.measureRest()
	return nil
}

// metaNow collects the state. s.mu is held.
func (s *Spool) metaNow() meta {
	m := meta{HubID: s.hubID, Token: s.token, NextSegment: s.nextSegment,
		Lanes: map[wire.Lane]uint64{}, Dropped: map[string]uint64{}, Quarantine: s.quarantined, Clock: s.time.save()}
	c := s.pending
	if c == nil {
		c = &change{s: s}
	}
	book := s.rules
	if c.rules != nil {
		book = *c.rules
	}
	m.LastRule, m.Rules = book.last, book.rules
	for l, seq := range s.high {
		m.Lanes[wire.Lane(l)] = seq
	}
	for r, n := range c.dropped() {
		m.Dropped[r.String()] = n
	}
	s.forgetEpochs()
	for _, e := range s.epochs {
		me := metaEpoch{Epoch: e, Lanes: map[wire.Lane]metaLane{}}
		if off, ok := s.offsets[e]; ok {
			me.Offset = &off
		}
		for l := range wire.Lane(wire.NumLanes) {
			fl := s.flows[wire.Flow{Epoch: e, Lane: l}]
			if fl == nil || fl.last == 0 {
				continue
			}
			ml := metaLane{Base: fl.base, Last: fl.last, Removed: pairsOf(fl.removed)}
			ml.note(c.now(fl))
			me.Lanes[l] = ml
		}
		m.Epochs = append(m.Epochs, me)
	}
	return m
}

// removals is what the meta file says of them. Damage that an older version
// noted was never marked as sent: a void of it may lie at the hub.
func (ml *metaLane) removals() (out removals) {
	for _, r := range ml.Lost {
		out.gone = out.gone.put(goneRange{wire.Range{First: r[0], Last: r[1]}, wire.ReasonQuarantine, inBlock})
	}
	for _, g := range ml.Gone {
		out.gone = append(out.gone, goneRange{wire.Range{First: g.Seq[0], Last: g.Seq[1]}, g.Reason, g.Sent})
	}
	for _, n := range ml.Notes {
		out.noted = append(out.noted, note{wire.Range{First: n.Seq[0], Last: n.Seq[1]}, state{n.Is.At, n.Is.Rules}, state{n.Sent.At, n.Sent.Rules}, n.Removed})
	}
	return out
}

func (ml *metaLane) note(rs *removals) {
	for _, g := range rs.gone {
		ml.Gone = append(ml.Gone, metaGone{[2]uint64{g.First, g.Last}, g.reason, g.sent})
	}
	for _, n := range rs.noted {
		ml.Notes = append(ml.Notes, metaNote{[2]uint64{n.First, n.Last}, metaState{n.is.at, n.is.rules}, metaState{n.sent.at, n.sent.rules}, n.n})
	}
}

// setPin changes one of the two facts of the session and makes it durable.
func (s *Spool) setPin(pin *string, v string) error {
	s.mu.Lock()
	old, closed := *pin, s.closed
	if !closed {
		*pin = v
	}
	s.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case old == v:
		return nil
	}
	if err := s.reserved(s.saveMeta); err != nil {
		s.mu.Lock()
		*pin = old
		s.mu.Unlock()
		return err
	}
	return nil
}

// HubID is the hub that this spool belongs to; empty before the first session.
func (s *Spool) HubID() string { s.mu.RLock(); defer s.mu.RUnlock(); return s.hubID }

// SetHubID makes id durable.
func (s *Spool) SetHubID(id string) error { return s.setPin(&s.hubID, id) }

// Token is the session token that was last made durable.
func (s *Spool) Token() string { s.mu.RLock(); defer s.mu.RUnlock(); return s.token }

// SetToken makes t durable.
func (s *Spool) SetToken(t string) error { return s.setPin(&s.token, t) }
