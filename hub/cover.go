package hub

import (
	"maps"
	"slices"
	"strings"
)

// coverSteps bounds the search for a subject that a route alone would take. A
// table of routes that people write takes some hundreds.
const coverSteps = 100_000

// coveredBy returns which of the earlier patterns together take every subject
// that match takes: one if one is enough, else none of those listed can be left
// out; nil if a subject is left for match.
func coveredBy(match string, earlier []string) (by []int) {
	for i, e := range earlier {
		if covers(match, []string{e}) {
			return []int{i}
		}
	}
	if !covers(match, earlier) {
		return nil
	}
	left := slices.Clone(earlier)
	for i := range left {
		without := slices.Clone(left)
		without[i] = ""
		if covers(match, without) {
			left = without
			continue
		}
		by = append(by, i)
	}
	return by
}

// covers reports whether every subject under match is under one of the patterns
// too; empty patterns take nothing.
func covers(match string, patterns []string) bool {
	c := cover{left: coverSteps}
	alive := make([][]string, 0, len(patterns))
	for _, p := range patterns {
		if p != "" {
			alive = append(alive, strings.Split(p, "."))
		}
	}
	return !c.escapes(strings.Split(match, "."), alive)
}

// cover looks for a subject token by token.
type cover struct {
	left int // steps
}

// escapes reports whether a subject under the rest of match is under the rest of
// no pattern. It also does if the search becomes too long: better a route that
// never gets a message than one that is refused for no reason.
func (c *cover) escapes(match []string, patterns [][]string) bool {
	if c.left--; c.left < 0 {
		return true
	}
	for _, p := range patterns {
		if p[0] == ">" {
			return false
		}
	}
	// Tokens that no pattern names are all alike: "" stands for them.
	tokens := map[string]bool{match[0]: true}
	if match[0] == "*" || match[0] == ">" {
		tokens = map[string]bool{"": true}
		for _, p := range patterns {
			if p[0] != "*" {
				tokens[p[0]] = true
			}
		}
	}
	for _, t := range slices.Sorted(maps.Keys(tokens)) {
		if c.after(t, match, patterns) {
			return true
		}
	}
	return false
}

// after is escapes once the next token is t: the subject ends with it, or goes on.
func (c *cover) after(t string, match []string, patterns [][]string) bool {
	var rest [][]string
	ended := false
	for _, p := range patterns {
		switch {
		case p[0] != "*" && p[0] != t:
		case len(p) == 1:
			ended = true // takes the subject if it ends here
		default:
			rest = append(rest, p[1:])
		}
	}
	if match[0] == ">" {
		return !ended || c.escapes(match, rest)
	}
	if len(match) == 1 {
		return !ended
	}
	return c.escapes(match[1:], rest)
}
