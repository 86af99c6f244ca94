package agent

import (
	"fmt"
	"strings"
)

// LaneNotes tells of rules that never apply, because an earlier one takes all
// that they would.
func (c Config) LaneNotes() (notes []string) {
	for i, r := range c.Lanes {
		for j, earlier := range c.Lanes[:i] {
			if covers(earlier.Match, r.Match) {
				notes = append(notes, fmt.Sprintf("lanes[%d]: %s never applies, since lanes[%d] (%s, %s) takes all of it and the first match wins; put it before that, or leave it out", i, r.Match, j, earlier.Match, earlier.Lane))
				break
			}
		}
	}
	return notes
}

// covers reports whether wide matches every subject that narrow matches. Both
// are good filters.
func covers(wide, narrow string) bool {
	w, n := strings.Split(wide, "."), strings.Split(narrow, ".")
	for i, t := range w {
		switch {
		case i == len(n):
			return false
		case t == ">":
			return true
		case n[i] == ">", t != "*" && t != n[i]:
			return false
		}
	}
	return len(w) == len(n)
}
