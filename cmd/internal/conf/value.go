package conf

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes, written 64KiB, 10MB or 4096.
type Size int64

var units = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3}, {"B", 1},
}

// UnmarshalText reads what MarshalText writes, and decimal units.
func (s *Size) UnmarshalText(b []byte) error {
	number, unit := string(b), int64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || f < 0 || strings.ContainsAny(number, "eEpPxX_+nN") {
		return fmt.Errorf("%q is not a size such as 64KiB, 1GiB or 10MB", b)
	}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil && n <= math.MaxInt64/unit {
		*s = Size(n * unit)
		return nil
	}
	if f *= float64(unit); f >= math.MaxInt64 || f != math.Trunc(f) {
		return fmt.Errorf("%q is not a whole number of bytes below 8EiB", b)
	}
	*s = Size(f)
	return nil
}

func (s Size) String() string {
	for _, u := range units[:4] {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// MarshalText writes the shortest exact form.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// AutoSize is a size, or auto, which is zero.
type AutoSize int64

// UnmarshalText reads what MarshalText writes.
func (a *AutoSize) UnmarshalText(b []byte) error {
	if string(b) == "auto" {
		*a = 0
		return nil
	}
	var s Size
	if s.UnmarshalText(b) != nil || s == 0 {
		return fmt.Errorf("%q is neither auto nor a size such as 512MiB", b)
	}
	*a = AutoSize(s)
	return nil
}

// MarshalText writes auto or the shortest exact form.
func (a AutoSize) MarshalText() ([]byte, error) {
	if a == 0 {
		return []byte("auto"), nil
	}
	return Size(a).MarshalText()
}

// Percent is a whole number from 0 to 100, written 50%.
type Percent int

// UnmarshalText reads what MarshalText writes.
func (p *Percent) UnmarshalText(b []byte) error {
	number, ok := strings.CutSuffix(string(b), "%")
	n, err := strconv.ParseUint(number, 10, 8)
	if !ok || err != nil || n > 100 {
		return fmt.Errorf("%q is not a percentage from 0%% to 100%%", b)
	}
	*p = Percent(n)
	return nil
}

// MarshalText writes 50%.
func (p Percent) MarshalText() ([]byte, error) { return []byte(strconv.Itoa(int(p)) + "%"), nil }

// Share is a part of a whole: a percentage or a size. One of them is set.
type Share struct {
	Percent Percent
	Bytes   Size
}

// UnmarshalText reads what MarshalText writes.
func (s *Share) UnmarshalText(b []byte) error {
	*s = Share{}
	if s.Percent.UnmarshalText(b) == nil && s.Percent > 0 || s.Bytes.UnmarshalText(b) == nil && s.Bytes > 0 {
		return nil
	}
	return fmt.Errorf("%q is neither a percentage such as 30%% nor a size such as 2GiB", b)
}

// MarshalText writes what was read.
func (s Share) MarshalText() ([]byte, error) {
	if s.Percent > 0 {
		return s.Percent.MarshalText()
	}
	return s.Bytes.MarshalText()
}

// Duration is written 10s, 2ms or 24h.
type Duration time.Duration

// UnmarshalText reads what MarshalText writes.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil || v < 0 {
		return fmt.Errorf("%q is not a duration such as 10s, 2ms or 24h", b)
	}
	*d = Duration(v)
	return nil
}

// MarshalText leaves out units that are zero: 24h, not 24h0m0s.
func (d Duration) MarshalText() ([]byte, error) {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return []byte(s), nil
}

// Mode is the permission bits of a file, written 0660.
type Mode uint32

// UnmarshalText reads octal digits.
func (m *Mode) UnmarshalText(b []byte) error {
	n, err := strconv.ParseUint(strings.TrimPrefix(string(b), "0o"), 8, 32)
	if err != nil || n > 0o777 {
		return fmt.Errorf("%q is not a file mode such as 0660", b)
	}
	*m = Mode(n)
	return nil
}

// MarshalText writes four octal digits.
func (m Mode) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%04o", uint32(m)), nil }

// word reads one of a few words.
func word(dst *string, b []byte, known ...string) error {
	if !slices.Contains(known, string(b)) {
		return fmt.Errorf("%q is not one of %s", b, strings.Join(known, ", "))
	}
	*dst = string(b)
	return nil
}

// RedactURL hides the password of an address.
func RedactURL(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.User == nil {
		return s
	}
	return u.Redacted()
}
