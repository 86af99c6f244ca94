package hub

import "strconv"

// Size is a number of bytes, or a share of max_store. The zero value means
// auto, or the default where a key has one.
type Size struct {
	Bytes   int64
	Percent int // 1 to 100; then Bytes is 0
}

// Of is the size in bytes where total is 100 %.
func (s Size) Of(total int64) int64 {
	if s.Percent > 0 {
		return total/100*int64(s.Percent) + total%100*int64(s.Percent)/100
	}
	return s.Bytes
}

// String prints the size as hub.yaml has it.
func (s Size) String() string {
	switch {
	case s.Percent > 0:
		return strconv.Itoa(s.Percent) + "%"
	case s.Bytes == 0:
		return "auto"
	}
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if s.Bytes%u.bytes == 0 {
			return strconv.FormatInt(s.Bytes/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(s.Bytes, 10)
}

// check reports a size that cannot be one.
func (s Size) check(p *problems, key string) {
	if s.Percent < 0 || s.Percent > 100 || s.Bytes < 0 || s.Percent > 0 && s.Bytes > 0 {
		p.add(key, "%d bytes or %d%% is not a size; write one such as 10GiB, or a share of max_store such as 30%%", s.Bytes, s.Percent)
	}
}
