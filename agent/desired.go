package agent

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fieldpost/fieldpost/agent/settings"
	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Settings are what the hub may change while the agent runs.
type Settings struct {
	Level slog.Level
	Link  LinkConfig
	Lanes []LaneRule
}

func (c Config) settings() *Settings { return &Settings{c.Level, c.Link, c.Lanes} }

// lane is the one that a rule gives to a subject.
func (s *Settings) lane(subject string) wire.Lane {
	for _, r := range s.Lanes {
		if wire.MatchFilter(r.Match, subject) {
			return r.Lane
		}
	}
	return wire.Normal
}

func (l LinkConfig) tuning() uplink.Tuning {
	return uplink.Tuning{Flush: l.Flush, MaxRate: l.MaxRate, MaxFrame: l.maxFrame()}
}

// openDesired puts what the hub wanted last into effect, before anything is
// built of it.
func (a *Agent) openDesired() {
	a.desired = settings.Open(settings.Config{
		Dir: a.cfg.DataDir, Parse: a.parseSettings, Trial: a.cfg.TrialTime, Log: a.log, Fault: a.cfg.Fault,
		Up: func() bool { up := a.uplink(); return up != nil && up.Status().Up },
	})
	a.exchange = a.desired.Exchange(a.commands)
}

// parseSettings reads the member "agent" of a document.
func (a *Agent) parseSettings(member json.RawMessage) (settings.Part, error) {
	cfg := a.cfg
	switch {
	case a.cfg.Overlay != nil:
		var err error
		if cfg, err = a.cfg.Overlay(member); err != nil {
			return settings.Part{}, err
		}
		cfg = cfg.withDefaults()
	case string(member) != "{}":
		return settings.Part{}, errors.New("agent: this program has no settings that can be changed remotely")
	}
	s := cfg.settings()
	text, err := json.Marshal(s.Link)
	if err != nil {
		return settings.Part{}, fmt.Errorf("agent.link: %w", err)
	}
	return settings.Part{Link: string(text), Apply: func() bool { return a.tune(s) }}, nil
}

// tune puts settings into effect. It reports whether the link is made anew.
func (a *Agent) tune(s *Settings) (renewed bool) {
	a.mu.Lock()
	class := a.classOver(a.tuned.Load().Link.Class)
	renewed = a.classOver(s.Link.Class) != class
	a.tuned.Store(s)
	up := a.up
	a.mu.Unlock()
	if a.cfg.LevelVar != nil {
		a.cfg.LevelVar.Set(s.Level)
	}
	if up == nil {
		return false // all is built of them
	}
	a.policy.Set(s.Link.policy())
	select {
	case a.retuned <- struct{}{}:
	default:
	}
	up.Tune(s.Link.tuning())
	if renewed {
		up.Changed()
		up.Kick()
	}
	return renewed
}

// desiredStatus is the part of GET /v1/status.
type desiredStatus struct {
	Version string            `json:"version"`
	State   wire.DesiredState `json:"state"`
	Reason  string            `json:"reason,omitempty"`
}

func (a *Agent) desiredStatus() *desiredStatus {
	v := a.desired.View()
	if v.Version == "" {
		return nil
	}
	return &desiredStatus{v.Version, v.State, v.Reason}
}

// maxDesiredWait is the longest ?wait of GET /v1/desired.
const maxDesiredWait = 10 * time.Minute

// desiredPath is followed by a version and what a program says of it.
const desiredPath = "/v1/desired/"

var desiredRoute = route{"POST", nil, (*Agent).sayOfDesired}

// getDesired is GET /v1/desired.
func (a *Agent) getDesired(w http.ResponseWriter, r *http.Request) *problem {
	wait := time.Duration(0)
	if text := r.URL.Query().Get("wait"); text != "" {
		var err error
		if wait, err = time.ParseDuration(text); err != nil || wait < 0 || wait > maxDesiredWait {
			return newProblem(codeBadRequest, "wait %q is not a duration from 0s to 10m, such as 30s", text)
		}
	}
	if _, p := a.gate.enter(); p != nil {
		return p
	}
	a.gate.leave() // the wait ends by itself when the agent stops
	known := r.Header.Get("If-None-Match")
	v := a.desired.View()
	if wait > 0 && desiredTag(v) == known {
		ctx, cancel := context.WithTimeout(r.Context(), wait)
		defer cancel()
		go func() {
			select {
			case <-a.stopping:
				cancel()
			case <-ctx.Done():
			}
		}()
		var err error
		if v, err = a.desired.Wait(ctx, func(v settings.View) bool { return desiredTag(v) != known }); err != nil {
			return newProblem(codeQuota, "%v; end one, or ask without wait", err)
		}
	}
	tag := desiredTag(v)
	w.Header().Set("ETag", tag)
	if tag == known {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return writeJSON(w, http.StatusOK, v)
}

// desiredTag is another one for everything else that is shown.
func desiredTag(v settings.View) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("agent: " + err.Error()) // a document is JSON
	}
	sum := sha256.Sum256(b)
	return fmt.Sprintf(`"%x"`, sum[:8])
}

// sayOfDesired is POST /v1/desired/{version}/refuse and apply.
func (a *Agent) sayOfDesired(w http.ResponseWriter, r *http.Request) *problem {
	escaped, verb, ok := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), desiredPath), "/")
	version, err := url.PathUnescape(escaped)
	if !ok || err != nil || verb != "refuse" && verb != "apply" {
		return newProblem(codeNotFound, "%s is not a path of this API; of a version is said %s{version}/refuse or apply", r.URL.Path, desiredPath)
	}
	bd, p := a.readBody(w, r, 4<<10, "what a reason may have")
	if p != nil {
		return p
	}
	defer bd.release(a)
	if _, p := a.gate.enter(); p != nil {
		return p
	}
	defer a.gate.leave()
	if verb == "apply" {
		err = a.desired.Confirm(version)
	} else {
		err = a.desired.Refuse(version, string(bd.b))
	}
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
		return nil
	case errors.Is(err, settings.ErrOther):
		return newProblem(codeOutdated, "%v; look at GET /v1/desired", err)
	}
	return newProblem(codeDiskFault, "this cannot be kept (%v); the agent goes on trying, repeat it later", err)
}
