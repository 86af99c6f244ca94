package wire

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxSubject is the longest subject, in bytes.
const MaxSubject = 255

// MaxHeaders bounds a message's own headers, keys and values together, in bytes.
const MaxHeaders = 4 << 10

// CheckSubject reports why s cannot be published: it is empty, too long, holds
// white space, control characters or wildcards, or has an empty token or one
// that begins with $.
func CheckSubject(s string) error {
	switch {
	case s == "":
		return errors.New("subject is empty; name one such as sensors.temperature")
	case len(s) > MaxSubject:
		return fmt.Errorf("subject is %d bytes; the limit is %d", len(s), MaxSubject)
	}
	begins := true // a token
	for i, r := range s {
		switch {
		case r == '.':
			if begins {
				return errEmptyToken(s)
			}
			begins = true
			continue
		case r == '$' && begins:
			return fmt.Errorf("subject %q has a token that begins with $; these are reserved", s)
		case r == '*' || r == '>':
			return fmt.Errorf("subject %q has a wildcard; publish to one literal subject", s)
		case r == utf8.RuneError && !utf8.ValidString(s[i:]):
			return fmt.Errorf("subject %q is not valid UTF-8", s)
		case unicode.IsSpace(r) || unicode.IsControl(r):
			return fmt.Errorf("subject %q has white space or a control character", s)
		}
		begins = false
	}
	if begins {
		return errEmptyToken(s)
	}
	return nil
}

func errEmptyToken(s string) error {
	return fmt.Errorf("subject %q has an empty token; write tokens separated by single dots", s)
}

// MaxID is the longest publisher id, in bytes.
const MaxID = 255

// CheckID reports why s cannot be a publisher id; the hub hands it on as the
// value of a header.
func CheckID(s string) error {
	switch {
	case s == "":
		return errors.New("id is empty")
	case len(s) > MaxID:
		return fmt.Errorf("id is %d bytes; the limit is %d", len(s), MaxID)
	case !utf8.ValidString(s):
		return errors.New("id is not valid UTF-8")
	case strings.ContainsFunc(s, unicode.IsControl) || strings.TrimSpace(s) != s:
		return fmt.Errorf("id %q holds a control character, or white space at an end", s)
	}
	return nil
}

// MaxDevice is the longest device id, in bytes.
const MaxDevice = 64

// CheckDevice reports why s is not a device id.
func CheckDevice(s string) error {
	if !token(s, MaxDevice) {
		return fmt.Errorf("device id %q is not 1 to 64 of A-Z a-z 0-9 _ -", s)
	}
	return nil
}

// CheckHeaders reports why a publisher's own headers are refused.
func CheckHeaders(hs []Pair) error {
	n := 0
	for _, h := range hs {
		if !dotted(h.Key, MaxHeaders) {
			return fmt.Errorf("header name %q is not made of letters, digits, -, _ and . only", h.Key)
		}
		low := strings.ToLower(h.Key)
		if strings.HasPrefix(low, "nats-") || strings.HasPrefix(low, "fieldpost-") {
			return fmt.Errorf("header name %q is reserved; choose one that begins with neither Nats- nor Fieldpost-", h.Key)
		}
		if low == "status" { // NATS clients take an empty message with it for one of the server's own
			return fmt.Errorf("header name %q is reserved; choose another", h.Key)
		}
		if strings.ContainsAny(h.Value, "\r\n\x00") || !utf8.ValidString(h.Value) || strings.TrimSpace(h.Value) != h.Value {
			return fmt.Errorf("header %q: the value holds a line break, a NUL, bytes that are not UTF-8, or white space at an end", h.Key)
		}
		n += len(h.Key) + len(h.Value)
	}
	if n > MaxHeaders {
		return fmt.Errorf("headers are %d bytes together; the limit is %d", n, MaxHeaders)
	}
	return nil
}

// token reports whether s is 1 to limit characters that are safe as a token of a subject.
func token(s string, limit int) bool {
	return dotted(s, limit) && !strings.Contains(s, ".")
}

// dotted is token with dots.
func dotted(s string, limit int) bool {
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return 1 <= len(s) && len(s) <= limit
}
