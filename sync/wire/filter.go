package wire

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// CheckFilter reports why f is not a subject filter: a subject in which * stands
// for one token and > as the last token for one or more.
func CheckFilter(f string) error {
	switch {
	case f == "":
		return errors.New("filter is empty; > matches everything")
	case len(f) > MaxSubject:
		return fmt.Errorf("filter is %d bytes; the limit is %d", len(f), MaxSubject)
	case !utf8.ValidString(f):
		return errors.New("filter is not valid UTF-8")
	}
	tokens := strings.Split(f, ".")
	for i, t := range tokens {
		switch {
		case t == "":
			return fmt.Errorf("filter %q has an empty token", f)
		case t == "*", t == ">" && i == len(tokens)-1:
		case strings.ContainsAny(t, "*>"):
			return fmt.Errorf("filter %q: * stands for a whole token, > for all that follow at the end", f)
		case strings.ContainsFunc(t, func(r rune) bool { return r <= ' ' || r == 0x7f }):
			return fmt.Errorf("filter %q has white space or a control character", f)
		}
	}
	return nil
}

// MatchFilter reports whether the valid filter takes the valid subject.
func MatchFilter(filter, subject string) bool {
	for {
		if filter == ">" {
			return true
		}
		f, frest, fmore := strings.Cut(filter, ".")
		s, srest, smore := strings.Cut(subject, ".")
		if f != "*" && f != s || fmore != smore {
			return false
		}
		if !fmore {
			return true
		}
		filter, subject = frest, srest
	}
}
