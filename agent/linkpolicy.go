package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fieldpost/fieldpost/sync/policy"
)

const (
	maxFlush   = time.Minute
	maxClass   = 32 // characters of a class name
	usageName  = "link.json"
	usageEvery = 2 * time.Second // how often the use of the daily budget is looked at
	usageLate  = time.Minute     // a little of it is written then; a hundredth of the budget at once

	// budgetFrames: a frame takes no more than this part of the daily budget, and 4 KiB,
	// as one that is under way is finished.
	budgetFrames = 32
)

// maxFrame is how many bytes a frame may have; 0: as many as the link carries.
func (l LinkConfig) maxFrame() int {
	if l.DailyBytes == 0 {
		return 0
	}
	return int(min(max(l.DailyBytes/budgetFrames, 4<<10), math.MaxInt32))
}

// windows are link.windows; the error names the key.
func (l LinkConfig) windows() (out []policy.Window, faults []error) {
	for i, w := range l.Windows {
		key := fmt.Sprintf("link.windows[%d]", i)
		cron, err := policy.ParseCron(w.Cron)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s.cron: %w", key, err))
		}
		if w.Class != "" && !validClass(w.Class) {
			faults = append(faults, fmt.Errorf("%s.class: %q is not a name of 1 to %d letters, digits, - and _", key, w.Class, maxClass))
		}
		win := policy.Window{Class: w.Class, Lanes: w.Lanes, Cron: cron, For: w.For}
		if err := win.Check(); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", key, err))
		}
		out = append(out, win)
	}
	return out, faults
}

// classes are those that the link can be set to: two always, and what a window
// is for.
func (l LinkConfig) classes() []string {
	names := []string{classUnmetered, classMetered}
	for _, w := range l.Windows {
		if w.Class != "" && !slices.Contains(names, w.Class) {
			names = append(names, w.Class)
		}
	}
	return names
}

func validClass(name string) bool {
	return len(name) <= maxClass && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}

func (l LinkConfig) validate(bad func(key, format string, args ...any)) {
	oneOf(bad, "link.class", l.Class, l.classes()...)
	notNegative(bad, "link.max_rate", l.MaxRate)
	if l.Flush < 0 || l.Flush > maxFlush {
		bad("link.flush", "%s is not between 0s and 1m", l.Flush)
	}
	notNegative(bad, "link.daily_bytes", l.DailyBytes)
	_, faults := l.windows()
	for _, err := range faults {
		key, text, _ := strings.Cut(err.Error(), ": ")
		bad(key, "%s", text)
	}
}

// newPolicy builds what the uplink asks, from the configuration and what an
// earlier run left.
func (a *Agent) newPolicy() *policy.Policy {
	c := a.tuned.Load().Link.policy()
	c.Class = a.linkClass
	usage, err := loadUsage(a.usageFile())
	if err != nil && c.DailyBytes > 0 {
		a.log.Warn("what was used of link.daily_bytes is not known; the count starts anew", "err", err)
	}
	c.Usage = usage
	return policy.New(c)
}

// policy is the link's limits as the uplink's policy has them.
func (l LinkConfig) policy() policy.Config {
	windows, _ := l.windows() // Validate has refused faults
	return policy.Config{MaxRate: l.MaxRate, DailyBytes: l.DailyBytes, Windows: windows}
}

// usageJSON is the file link.json in data_dir.
type usageJSON struct {
	Version int `json:"version"`
	policy.Usage
}

const usageVersion = 1

func (a *Agent) usageFile() string { return filepath.Join(a.cfg.DataDir, usageName) }

// loadUsage returns zero for a file that does not exist, and with an error.
func loadUsage(name string) (policy.Usage, error) {
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return policy.Usage{}, nil
	}
	if err != nil {
		return policy.Usage{}, err
	}
	var u usageJSON
	if err := json.Unmarshal(data, &u); err != nil {
		return policy.Usage{}, fmt.Errorf("%s: %w", name, err)
	}
	if u.Version != usageVersion || !u.Valid() {
		return policy.Usage{}, fmt.Errorf("%s: version %d or its numbers are not known to this agent", name, u.Version)
	}
	return u.Usage, nil
}

// saveUsage replaces the file. It is not synced: after a power cut an old or a
// lost count is no harm worth a write to the flash.
func saveUsage(name string, u policy.Usage) error {
	data, err := json.Marshal(usageJSON{usageVersion, u})
	if err != nil {
		return err
	}
	if err := os.WriteFile(name+".tmp", append(data, '\n'), 0o640); err != nil {
		return err
	}
	return os.Rename(name+".tmp", name)
}

// keepUsage saves what is used of the daily budget until ctx ends, and then once
// more. Without a budget there is nothing to keep: it waits for one.
func (a *Agent) keepUsage(ctx context.Context) {
	for a.tuned.Load().Link.DailyBytes == 0 {
		select {
		case <-ctx.Done():
			return
		case <-a.retuned:
		}
	}
	tick := time.NewTicker(usageEvery)
	defer tick.Stop()
	var saved policy.Usage
	var savedAt time.Time
	failed := false
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-tick.C:
		}
		limit := a.tuned.Load().Link.DailyBytes
		if limit == 0 && !ended {
			continue // it was taken away
		}
		u := a.policy.Usage(time.Now())
		little := u.Day == saved.Day && u.Bytes-saved.Bytes < limit/100 && time.Since(savedAt) < usageLate
		if (u == saved || little) && !ended {
			continue
		}
		savedAt = time.Now()
		err := saveUsage(a.usageFile(), u)
		if err != nil && !failed {
			a.log.Warn("what was used of link.daily_bytes cannot be kept; make room or check data_dir", "err", err)
		}
		if failed = err != nil; !failed {
			saved = u
		}
	}
}
