package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// maxWaiting is how many programs may wait for a change.
const maxWaiting = 64

// Errors that callers branch on.
var (
	ErrMany = errors.New("settings: too many programs wait for a change")
	// ErrOther: the version is not the one that was given last, or is refused.
	ErrOther = errors.New("settings: not the version that programs may speak of")
)

// View is what programs are shown.
type View struct {
	Version   string            `json:"version"`   // given last; empty: none yet
	State     wire.DesiredState `json:"state"`     // empty with Version
	Reason    string            `json:"reason"`    // why it is refused
	InEffect  string            `json:"in_effect"` // the version of Document; empty: none
	Document  json.RawMessage   `json:"document"`  // that is in effect
	Confirmed *time.Time        `json:"confirmed,omitempty"`
}

// view shows what is durable; mu is held.
func (s *Store) view() View {
	r := s.durable.report()
	v := View{Version: r.Version, State: r.State, Reason: r.Reason, Document: json.RawMessage("{}")}
	if d := s.durable.effective(); d != nil {
		v.InEffect, v.Document = d.Version, d.Document
	}
	if at := s.durable.Confirmed; at > 0 {
		t := time.UnixMilli(at).UTC()
		v.Confirmed = &t
	}
	return v
}

// View is what there is now.
func (s *Store) View() View {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view()
}

// Wait is View as soon as changed says that it is news, or when ctx ends.
func (s *Store) Wait(ctx context.Context, news func(View) bool) (View, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting >= maxWaiting {
		return View{}, ErrMany
	}
	s.waiting++
	defer func() { s.waiting-- }()
	for {
		v, changed := s.view(), s.changed
		if news(v) || ctx.Err() != nil {
			return v, nil
		}
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
}

// Refuse is a program's refusal of its part of a version. The agent's own stays
// in effect; the hub is told that the version is refused. The first reason counts.
func (s *Store) Refuse(version, reason string) error {
	if reason = clean("a program refuses it: " + reason); reason == "a program refuses it: " {
		reason = "a program refuses it"
	}
	return s.word(version, func(k *Kept) {
		if k.Refusal == "" {
			k.Refusal, k.At = reason, s.cfg.Now().UnixMilli()
		}
	})
}

// Confirm is a program's word that it has applied its part of a version. It is
// shown on the device; the hub is not told.
func (s *Store) Confirm(version string) error {
	return s.word(version, func(k *Kept) {
		if k.Confirmed == 0 {
			k.Confirmed = s.cfg.Now().UnixMilli()
		}
	})
}

// word makes durable what a program says of the version that was given last.
func (s *Store) word(version string, say func(*Kept)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.core.k
	switch {
	case k.Version.Version == "":
		return fmt.Errorf("%w: %.80q was asked for, and the hub has given none yet", ErrOther, version)
	case version == "" || version != k.Version.Version:
		return fmt.Errorf("%w: %.80q was asked for, the last is %.80q", ErrOther, version, k.Version.Version)
	case k.State == wire.DesiredRefused:
		return fmt.Errorf("%w: %.80q is refused by the agent", ErrOther, version)
	}
	before := s.core.k
	say(&s.core.k)
	if err := s.keep(); err != nil {
		s.core.k = before
		return fmt.Errorf("settings: %w", err)
	}
	return nil
}
