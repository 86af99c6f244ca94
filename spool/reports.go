package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Report is what a person finds beside what was put aside.
type Report struct {
	Name     string            `json:"report"` // of its file
	Segment  string            `json:"segment"`
	Time     time.Time         `json:"time"`
	Cause    string            `json:"cause"`
	Salvaged uint64            `json:"salvaged_messages"`
	Lost     map[string]string `json:"lost,omitempty"` // ranges by flow, where that is known
	Messages uint64            `json:"lost_messages"`
	Kept     string            `json:"kept,omitempty"` // folder with the damaged files, unless there was no room
}

// Reports lists the reports in the quarantine, oldest first. One that cannot be
// read says so as its cause.
func (in *Inspector) Reports() ([]Report, error) {
	entries, err := os.ReadDir(in.s.quarantineDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Report
	for _, e := range entries {
		if !isReport(e.Name()) {
			continue
		}
		r, err := in.s.readReport(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed this moment
		}
		if err != nil {
			r.Cause = "the report cannot be read: " + err.Error()
		}
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b Report) int { return a.Time.Compare(b.Time) })
	return out, nil
}

// Report reads one report; fs.ErrNotExist if there is none of that name.
func (in *Inspector) Report(name string) (Report, error) {
	if !isReport(name) {
		return Report{}, fmt.Errorf("spool: report %q: %w", name, fs.ErrNotExist)
	}
	return in.s.readReport(name)
}

func isReport(name string) bool {
	return strings.HasSuffix(name, ".json") && filepath.Base(name) == name && !strings.HasPrefix(name, ".")
}

func (s *Spool) readReport(name string) (Report, error) {
	r := Report{}
	data, err := os.ReadFile(filepath.Join(s.quarantineDir(), name))
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	r.Name = name
	return r, err
}

// RemoveReport deletes a report and the damaged files that it names. What is
// counted as lost stays so. fs.ErrNotExist if there is none of that name.
func (s *Spool) RemoveReport(name string) error {
	r, err := s.Inspector().Report(name)
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.repairMu.Lock() // nothing is put aside meanwhile
	defer s.repairMu.Unlock()
	// The files lie beside the report, whatever it says of their folder: the spool may have moved.
	if kept := filepath.Base(r.Kept); r.Kept != "" && !isReport(kept) && filepath.IsLocal(kept) && kept != "." {
		if err := os.RemoveAll(filepath.Join(s.quarantineDir(), kept)); err != nil {
			return diskError("remove "+kept, err)
		}
	}
	if err := os.Remove(filepath.Join(s.quarantineDir(), name)); err != nil {
		return diskError("remove "+name, err)
	}
	s.mu.Lock()
	s.quarantined.Reports = slices.DeleteFunc(slices.Clone(s.quarantined.Reports), func(n string) bool { return n == name })
	s.mu.Unlock()
	if err := s.reserved(s.saveMeta); err != nil {
		return err
	}
	s.measureRest()
	return syncDir(s.quarantineDir())
}
