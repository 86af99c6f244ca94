package cli

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible is text that others wrote as one line that a terminal can be given:
// control characters but the tab, and those that turn the direction of writing,
// are escaped as in Go, and so are bytes that are not UTF-8.
func Visible(s string) string {
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case !hidden(r):
			b.WriteString(s[:n])
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == utf8.RuneError:
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		s = s[n:]
	}
	return b.String()
}

func hidden(r rune) bool {
	return r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError ||
		r == '\u2028' || r == '\u2029')
}
