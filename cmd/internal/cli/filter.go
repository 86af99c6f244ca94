package cli

import (
	"strings"
	"unicode/utf8"
)

// maxFilter is the longest subject (wire.MaxSubject).
const maxFilter = 255

// CheckFilter refuses what is no filter of subjects, as a mistake in the call.
func CheckFilter(f string) error {
	const accepted = "a filter is tokens between dots, such as sensors.*.temp or sensors.>: * stands for one whole token, > at the end for all that follow"
	if f == "" || len(f) > maxFilter {
		return Usagef("filter is %d bytes, wanted are 1 to %d; > takes everything", len(f), maxFilter)
	}
	tokens := strings.Split(f, ".")
	for i, t := range tokens {
		wild := t == "*" || t == ">" && i == len(tokens)-1
		if t == "" || !utf8.ValidString(t) || !wild && strings.ContainsFunc(t, notInToken) {
			return Usagef("filter %q: token %d is %q; %s", f, i+1, t, accepted)
		}
	}
	return nil
}

func notInToken(r rune) bool { return r <= ' ' || r == 0x7f || r == '*' || r == '>' }
