package hub

import (
	"fmt"
	"strconv"
	"strings"
)

// Size is a number of bytes, or a share of max_store. The zero value means
// auto, or the default where a key has one.
type Size struct {
	Bytes   int64
	Percent int // 1 to 100; then Bytes is 0
}

var units = []struct {
	suffix string
	factor int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// ParseSize reads 64KiB, 1.5GiB, 200MB, 1048576, 30% or auto.
func ParseSize(s string) (Size, error) {
	bad := func() (Size, error) {
		return Size{}, fmt.Errorf("size %q is not like 64KiB, 10GiB, 30%% or auto", s)
	}
	if s == "auto" {
		return Size{}, nil
	}
	if p, ok := strings.CutSuffix(s, "%"); ok {
		n, err := strconv.Atoi(p)
		if err != nil || n < 1 || n > 100 {
			return Size{}, fmt.Errorf("share %q is not 1%% to 100%%", s)
		}
		return Size{Percent: n}, nil
	}
	number, factor := s, int64(1)
	for _, u := range units {
		if n, ok := strings.CutSuffix(s, u.suffix); ok {
			number, factor = strings.TrimSpace(n), u.factor
			break
		}
	}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		if n < 0 || n > (1<<62)/factor {
			return bad()
		}
		return Size{Bytes: n * factor}, nil
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || !(f >= 0) || f*float64(factor) > 1<<62 || strings.ContainsAny(number, "xXeEpPnN_") {
		return bad()
	}
	return Size{Bytes: int64(f * float64(factor))}, nil
}

func (s Size) String() string {
	switch {
	case s.Percent > 0:
		return strconv.Itoa(s.Percent) + "%"
	case s.Bytes == 0:
		return "auto"
	}
	for _, u := range []int{3, 2, 1, 0} {
		if s.Bytes%units[u].factor == 0 {
			return strconv.FormatInt(s.Bytes/units[u].factor, 10) + units[u].suffix
		}
	}
	return strconv.FormatInt(s.Bytes, 10)
}

// Of is the size in bytes where total is 100 %.
func (s Size) Of(total int64) int64 {
	if s.Percent > 0 {
		return total/100*int64(s.Percent) + total%100*int64(s.Percent)/100
	}
	return s.Bytes
}

// MarshalText prints the size as ParseSize reads it.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (s *Size) UnmarshalText(b []byte) (err error) {
	*s, err = ParseSize(string(b))
	return err
}
