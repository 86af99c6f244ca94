package conf

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Place gives mistakes that a package found in its Config ("spool.order: fresh-first
// is …", joined) the place where the key was set.
func Place(err error, origins Origins) error {
	if err == nil {
		return nil
	}
	var out Errors
	for _, e := range parts(err) {
		key, msg := cutKey(e.Error())
		if key == "" {
			out = append(out, Error{"configuration", "", msg})
			continue
		}
		out = append(out, Error{origins.of(key), key, msg})
	}
	return out
}

// parts takes joined errors apart, however they are wrapped.
func parts(err error) []error {
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		var out []error
		for _, inner := range e.Unwrap() {
			out = append(out, parts(inner)...)
		}
		if len(out) > 1 && !strings.Contains(out[0].Error(), ":") {
			out = out[1:] // the sentinel of fmt.Errorf("%w: %w", sentinel, joined)
		}
		return out
	}
	return []error{err}
}

// cutKey takes the key off a message "key: text".
func cutKey(msg string) (key, text string) {
	key, text, ok := strings.Cut(msg, ": ")
	if !ok || strings.ContainsAny(key, " /\"") {
		return "", msg
	}
	return key, text
}

// of finds where key was set, or else the list or group that it belongs to, or
// the first key below it that is not a default.
func (o Origins) of(key string) string {
	for k := key; k != ""; {
		if at := o[k]; at != "" {
			return at
		}
		k = k[:max(strings.LastIndexAny(k, ".["), 0)]
	}
	for _, k := range slices.Sorted(maps.Keys(o)) {
		if strings.HasPrefix(k, key+".") && o[k] != "default" {
			return o[k]
		}
	}
	return "default"
}

var position = regexp.MustCompile(`:\d+:\d+$`)

// Files lists what the values came from: files and variables, no defaults.
func (o Origins) Files() []string {
	seen := map[string]bool{}
	for _, at := range o {
		if name := position.ReplaceAllString(at, ""); name != "default" {
			seen[name] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}
