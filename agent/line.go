package agent

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// scanner reads JSON in place: strings that it returns alias its buffer, which
// it overwrites. The input must be valid UTF-8. encoding/json would not do: it
// takes keys in any case, and replaces what is not text without a word.
type scanner struct {
	b []byte
	i int
}

var errEnd = errors.New("it ends too early")

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\r', '\n':
			s.i++
		default:
			return
		}
	}
}

// take passes over white space and c.
func (s *scanner) take(c byte) error {
	s.space()
	if s.i == len(s.b) {
		return errEnd
	}
	if s.b[s.i] != c {
		return fmt.Errorf("%q in the place of %q at byte %d", s.b[s.i], c, s.i+1)
	}
	s.i++
	return nil
}

// end reports what follows where nothing should.
func (s *scanner) end() error {
	s.space()
	if s.i < len(s.b) {
		return fmt.Errorf("%q after the end at byte %d", s.b[s.i], s.i+1)
	}
	return nil
}

// object calls field for each key, with the scanner before the value.
func (s *scanner) object(field func(key []byte) error) error {
	if err := s.take('{'); err != nil {
		return err
	}
	if s.space(); s.i < len(s.b) && s.b[s.i] == '}' {
		s.i++
		return nil
	}
	for {
		key, err := s.str()
		if err != nil {
			return err
		}
		if err := s.take(':'); err != nil {
			return err
		}
		if err := field(key); err != nil {
			return err
		}
		s.space()
		if s.i == len(s.b) {
			return errEnd
		}
		s.i++
		switch s.b[s.i-1] {
		case ',':
		case '}':
			return nil
		default:
			return fmt.Errorf("%q in the place of a comma at byte %d", s.b[s.i-1], s.i)
		}
	}
}

// str reads a string, unescaped in place.
func (s *scanner) str() ([]byte, error) {
	if err := s.take('"'); err != nil {
		return nil, err
	}
	start := s.i
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return s.b[start : s.i-1 : s.i-1], nil
		case c == '\\':
			return s.escaped(start)
		case c < ' ':
			return nil, fmt.Errorf("a control character in a string at byte %d", s.i+1)
		}
		s.i++
	}
	return nil, errEnd
}

// escaped reads on from the first backslash of a string.
func (s *scanner) escaped(start int) ([]byte, error) {
	out := s.i
	for s.i < len(s.b) {
		c := s.b[s.i]
		s.i++
		switch {
		case c == '"':
			return s.b[start:out:out], nil
		case c < ' ':
			return nil, fmt.Errorf("a control character in a string at byte %d", s.i)
		case c != '\\':
			s.b[out] = c
			out++
			continue
		}
		r, err := s.escape()
		if err != nil {
			return nil, err
		}
		out += utf8.EncodeRune(s.b[out:s.i], r) // never longer than its escape
	}
	return nil, errEnd
}

// escape reads what follows a backslash.
func (s *scanner) escape() (rune, error) {
	if s.i == len(s.b) {
		return 0, errEnd
	}
	c := s.b[s.i]
	s.i++
	switch c {
	case '"', '\\', '/':
		return rune(c), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
		return s.unicode()
	}
	return 0, fmt.Errorf("the escape \\%c at byte %d is not one of JSON", c, s.i)
}

// unicode reads the digits of one escape, or of the two that make a pair.
func (s *scanner) unicode() (rune, error) {
	r, err := s.hex()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if s.i+2 <= len(s.b) && s.b[s.i] == '\\' && s.b[s.i+1] == 'u' {
		s.i += 2
		low, err := s.hex()
		if err != nil {
			return 0, err
		}
		if r := utf16.DecodeRune(r, low); r != utf8.RuneError {
			return r, nil
		}
	}
	return 0, fmt.Errorf("half a surrogate pair at byte %d; send bytes that are not text as payload_b64", s.i)
}

func (s *scanner) hex() (rune, error) {
	if s.i+4 > len(s.b) {
		return 0, errEnd
	}
	v, err := strconv.ParseUint(string(s.b[s.i:s.i+4]), 16, 16)
	if err != nil {
		return 0, fmt.Errorf("the escape \\u%s at byte %d is not one of JSON", s.b[s.i:s.i+4], s.i+1)
	}
	s.i += 4
	return rune(v), nil
}

// value passes over any JSON value and returns it as it stands. What is inside
// objects, lists and names of values is not checked.
func (s *scanner) value() ([]byte, error) {
	s.space()
	start, depth := s.i, 0
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case '"':
			if err := s.skipString(); err != nil {
				return nil, err
			}
			if depth == 0 {
				return s.b[start:s.i], nil
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return s.b[start:s.i], nil
			}
			if depth--; depth == 0 {
				s.i++
				return s.b[start:s.i], nil
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return s.b[start:s.i], nil
			}
		}
		s.i++
	}
	return nil, errEnd
}

func (s *scanner) skipString() error {
	for s.i++; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case '\\':
			s.i++
		case '"':
			s.i++
			return nil
		}
	}
	return errEnd
}

// pairs reads an object of strings.
func (s *scanner) pairs() (pairs []wire.Pair, err error) {
	err = s.object(func(key []byte) error {
		k := string(key)
		v, err := s.str()
		if err != nil {
			return fmt.Errorf("header %q: %w", k, err)
		}
		pairs = append(pairs, wire.Pair{Key: k, Value: string(v)})
		return nil
	})
	return pairs, err
}

// lineKey is a bit for each key that a line may have.
type lineKey uint16

const (
	keySubject lineKey = 1 << iota
	keyPayload
	keyPayloadB64
	keyJSON
	keyID
	keyLane
	keyTTL
	keyTime
	keyHeaders
)

const keysOfPayload = keyPayload | keyPayloadB64 | keyJSON

var lineKeys = map[string]lineKey{
	"subject": keySubject, "payload": keyPayload, "payload_b64": keyPayloadB64, "json": keyJSON,
	"id": keyID, "lane": keyLane, "ttl": keyTTL, "time": keyTime, "headers": keyHeaders,
}

// lineParser reads the lines of one request.
type lineParser struct {
	a       *Agent
	rules   *Settings    // of an atomic batch, which goes to one lane; nil: as they are when a line comes
	now     int64        // Unix milliseconds
	subject string       // of the line before: most are the same
	compact bytes.Buffer // scratch
}

// parse reads one line. The message's payload may alias the line, which is overwritten.
func (lp *lineParser) parse(line []byte) (m wire.Message, lane wire.Lane, p *problem) {
	if !utf8.Valid(line) {
		return m, 0, newProblem(codeBadLine, "not valid UTF-8; send bytes that are not text as payload_b64")
	}
	m.Time = lp.now
	var seen lineKey
	s := scanner{b: line}
	err := s.object(func(name []byte) error {
		key := lineKeys[string(name)]
		switch {
		case key == 0:
			return fmt.Errorf("%q is not a key of a line; there are subject, payload, payload_b64, json, id, lane, ttl, time, headers", name)
		case seen&key != 0:
			return fmt.Errorf("%q is given twice", name)
		}
		seen |= key
		return lp.field(&s, key, &m, &lane)
	})
	if err == nil {
		err = s.end()
	}
	if err != nil {
		if errors.As(err, &p) {
			return m, 0, p
		}
		return m, 0, newProblem(codeBadLine, "%v", err)
	}
	if n := seen & keysOfPayload; n == 0 || n&(n-1) != 0 {
		return m, 0, newProblem(codeBadLine, "give exactly one of payload, payload_b64 and json")
	}
	if seen&keySubject == 0 {
		return m, 0, newProblem(codeBadSubject, "the line has no subject")
	}
	if seen&keyLane == 0 {
		rules := lp.rules
		if rules == nil {
			rules = lp.a.tuned.Load()
		}
		lane = rules.lane(m.Subject)
	}
	return m, lane, lp.a.checkPayload(len(m.Payload))
}

// field reads the value of one key. Its error is a problem, or means bad_line.
func (lp *lineParser) field(s *scanner, key lineKey, m *wire.Message, lane *wire.Lane) (err error) {
	switch key {
	case keyJSON:
		m.Payload, err = lp.json(s)
		return err
	case keyHeaders:
		pairs, err := s.pairs()
		if err != nil {
			return newProblem(codeBadHeader, "headers are not an object of strings: %v", err)
		}
		m.Headers = pairs
		if err := wire.CheckHeaders(pairs); err != nil {
			return newProblem(codeBadHeader, "%v", err)
		}
		return nil
	}
	v, err := s.str()
	if err != nil {
		return err
	}
	var p *problem
	switch key {
	case keySubject:
		m.Subject, p = lp.checked(v)
	case keyPayload:
		m.Payload = v
	case keyPayloadB64:
		m.Payload, err = base64.StdEncoding.Strict().AppendDecode(nil, v)
		if err != nil {
			return fmt.Errorf("payload_b64: %w", err)
		}
	case keyID:
		m.ID = string(v)
		p = checkID(m.ID)
	case keyLane:
		*lane, p = parseLane(string(v))
	case keyTTL:
		m.TTL, p = parseTTL(string(v))
	case keyTime:
		m.Time, p = parseTime(string(v))
	}
	if p != nil {
		return p // not err = p: a nil *problem is no error
	}
	return nil
}

// checked returns a subject that can be published.
func (lp *lineParser) checked(v []byte) (string, *problem) {
	if lp.subject == "" || string(v) != lp.subject {
		subject := string(v)
		if err := wire.CheckSubject(subject); err != nil {
			return "", newProblem(codeBadSubject, "%v", err)
		}
		lp.subject = subject
	}
	return lp.subject, nil
}

// json reads a value and removes white space between its parts, nothing else.
func (lp *lineParser) json(s *scanner) ([]byte, error) {
	raw, err := s.value()
	if err != nil {
		return nil, err
	}
	lp.compact.Reset()
	if err := json.Compact(&lp.compact, raw); err != nil {
		return nil, fmt.Errorf("json: %w", err)
	}
	return raw[:copy(raw, lp.compact.Bytes())], nil
}
