package registry

import (
	"bytes"
	"slices"
	"sort"
	"strings"
	"unique"
)

// shelf holds every known device, sorted by name, in chunks: a page begins after
// a binary search, and what a filter looks at lies together in memory. A device
// of which nothing happens is packed (pack.go); one that lives here has an entry.
// Guarded by Registry.mu.
type shelf struct {
	chunks []*chunk // none is empty
	total  int
	online int
	cloned int
}

// chunkMax is how many devices share a chunk. Their names fit into 16 bits of
// length: 512 of at most 64 bytes.
const chunkMax = 512

// chunk is some devices that follow each other.
type chunk struct {
	names  []byte   // one after another
	ends   []uint16 // where each name ends
	slots  []slot
	online int
	cloned int
}

// slot is one device.
type slot struct {
	entry  *entry // nil: it is packed
	packed string
	labels unique.Handle[string] // of packed; the zero handle: none
	online bool
	cloned bool
}

// place is where a device is. It holds until a device is put or removed.
type place struct {
	chunk *chunk
	i     int
}

func (p place) slot() *slot { return &p.chunk.slots[p.i] }

func (c *chunk) name(i int) []byte {
	from := uint16(0)
	if i > 0 {
		from = c.ends[i-1]
	}
	return c.names[from:c.ends[i]]
}

// search returns the first place in c whose name is not before name.
func (c *chunk) search(name string) int {
	return sort.Search(len(c.slots), func(i int) bool { return string(c.name(i)) >= name })
}

// chunkOf returns the chunk in which name is, or would be.
func (s *shelf) chunkOf(name string) int {
	n := sort.Search(len(s.chunks), func(k int) bool { return string(s.chunks[k].name(0)) > name })
	return max(n-1, 0)
}

func (s *shelf) find(name string) (place, bool) {
	if len(s.chunks) == 0 {
		return place{}, false
	}
	c := s.chunks[s.chunkOf(name)]
	i := c.search(name)
	return place{c, i}, i < len(c.slots) && string(c.name(i)) == name
}

// put makes a place for a device that is not there yet.
func (s *shelf) put(name string) place {
	s.total++
	if len(s.chunks) == 0 {
		c := &chunk{}
		c.insert(0, name)
		s.chunks = append(s.chunks, c)
		return place{c, 0}
	}
	k := s.chunkOf(name)
	c := s.chunks[k]
	i := c.search(name)
	if len(c.slots) >= chunkMax {
		cut := len(c.slots) / 2
		if k == len(s.chunks)-1 && i == len(c.slots) {
			cut = i // names that come in order leave full chunks
		}
		right := c.split(cut)
		s.chunks = slices.Insert(s.chunks, k+1, right)
		if i >= cut {
			c, i = right, i-cut
		}
	}
	c.insert(i, name)
	return place{c, i}
}

func (c *chunk) insert(i int, name string) {
	at := uint16(0)
	if i > 0 {
		at = c.ends[i-1]
	}
	c.names = slices.Insert(c.names, int(at), []byte(name)...)
	c.ends = slices.Insert(c.ends, i, at)
	for j := i; j < len(c.ends); j++ {
		c.ends[j] += uint16(len(name))
	}
	c.slots = slices.Insert(c.slots, i, slot{})
}

// split takes what is from i on into a new chunk.
func (c *chunk) split(i int) *chunk {
	right := &chunk{}
	if i < len(c.slots) {
		at := c.ends[i-1]
		right.names, right.slots = bytes.Clone(c.names[at:]), slices.Clone(c.slots[i:])
		for _, end := range c.ends[i:] {
			right.ends = append(right.ends, end-at)
		}
		c.names = bytes.Clone(c.names[:at])
	}
	c.ends, c.slots = slices.Clone(c.ends[:i]), slices.Clone(c.slots[:i])
	for j := range right.slots {
		right.count(&right.slots[j], 1)
		c.count(&right.slots[j], -1)
	}
	return right
}

func (c *chunk) count(sl *slot, n int) {
	if sl.online {
		c.online += n
	}
	if sl.cloned {
		c.cloned += n
	}
}

// remove forgets a device.
func (s *shelf) remove(p place) {
	s.mark(p, false, false)
	c, name := p.chunk, p.chunk.name(p.i)
	first, n := string(c.name(0)), uint16(len(name))
	at := c.ends[p.i] - n
	c.names = slices.Delete(c.names, int(at), int(at+n))
	c.ends = slices.Delete(c.ends, p.i, p.i+1)
	for j := p.i; j < len(c.ends); j++ {
		c.ends[j] -= n
	}
	c.slots = slices.Delete(c.slots, p.i, p.i+1)
	s.total--
	if len(c.slots) == 0 {
		k := sort.Search(len(s.chunks), func(k int) bool {
			return len(s.chunks[k].slots) == 0 || string(s.chunks[k].name(0)) >= first
		})
		s.chunks = slices.Delete(s.chunks, k, k+1)
	}
}

// mark sets what is counted of a device.
func (s *shelf) mark(p place, online, cloned bool) {
	c, sl := p.chunk, p.slot()
	c.count(sl, -1)
	s.online, s.cloned = s.online-one(sl.online)+one(online), s.cloned-one(sl.cloned)+one(cloned)
	sl.online, sl.cloned = online, cloned
	c.count(sl, 1)
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// query is a filter that is ready to be asked: part of a name, state=online,
// state=offline, state=cloned, or label=value.
type query struct {
	part       []byte // of a name
	state      string
	label      bool
	key, value string // of the label

	last  unique.Handle[string] // asked of last
	taken bool
}

func newQuery(filter string) *query {
	key, value, isPair := strings.Cut(filter, "=")
	switch {
	case !isPair:
		return &query{part: []byte(filter)}
	case key == "state" && (value == "online" || value == "offline" || value == "cloned"):
		return &query{state: value}
	}
	return &query{label: true, key: key, value: value}
}

// counted reports whether the shelf knows how many the query takes without going
// through them.
func (q *query) counted(s *shelf) (total, online int, ok bool) {
	switch {
	case q.state == "online":
		return s.online, s.online, true
	case q.state == "offline":
		return s.total - s.online, 0, true
	case q.state == "" && !q.label && len(q.part) == 0:
		return s.total, s.online, true
	}
	return 0, 0, false
}

// skips reports that the query takes nothing of c.
func (q *query) skips(c *chunk) bool {
	switch q.state {
	case "online":
		return c.online == 0
	case "offline":
		return c.online == len(c.slots)
	case "cloned":
		return c.cloned == 0
	}
	return false
}

func (q *query) takes(c *chunk, i int) bool {
	sl := &c.slots[i]
	switch {
	case q.state == "online":
		return sl.online
	case q.state == "offline":
		return !sl.online
	case q.state == "cloned":
		return sl.cloned
	case !q.label:
		return bytes.Contains(c.name(i), q.part)
	case sl.entry != nil:
		v, ok := sl.entry.rec.Labels[q.key]
		return ok && v == q.value
	case sl.labels == noLabels:
		return false
	case sl.labels != q.last: // neighbours often have the same
		q.last, q.taken = sl.labels, hasLabel(sl.labels.Value(), q.key, q.value)
	}
	return q.taken
}
