package registry

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/fieldpost/fieldpost/hub/admin"
)

// Orders of a list of devices besides their names'.
const (
	ByBacklog = "backlog" // who holds the most messages comes first
	ByOldest  = "oldest"  // whose oldest message has waited longest
	BySeen    = "seen"    // who has been silent for longest
)

// vitals is what devices are ranked by.
type vitals struct {
	messages     uint64
	oldest, seen int64 // Unix milliseconds; 0: none
}

// rank is higher for what comes first.
func (v vitals) rank(order string) int64 {
	switch {
	case order == ByBacklog:
		return int64(min(v.messages, math.MaxInt64))
	case order == BySeen:
		return -v.seen
	case v.oldest == 0: // nothing waits
		return math.MinInt64
	}
	return -v.oldest
}

// vitals of a packed device are read without unpacking it.
func (sl *slot) vitals() vitals {
	if sl.entry == nil {
		return peek(sl.packed)
	}
	d := &sl.entry.rec.Device
	v := vitals{seen: max(d.Seen.UnixMilli(), 0)} // the zero time is none
	for _, l := range d.Backlog {
		v.add(l.Messages, l.Oldest)
	}
	return v
}

// add takes a lane's backlog in.
func (v *vitals) add(messages uint64, oldest int64) {
	v.messages += min(messages, 1<<50) // a device cannot overflow the sum
	if messages > 0 && oldest > 0 && (v.oldest == 0 || oldest < v.oldest) {
		v.oldest = oldest
	}
}

// Ranked is Devices in another order. It goes through all devices, whatever the
// filter. after is the last device of the page before, by what is known of it now:
// if that changed meanwhile, devices can be on both pages or on none; if it is not
// known any more, the list begins anew.
func (r *Registry) Ranked(order, after, filter string, limit int) (admin.Devices, error) {
	if !slices.Contains([]string{ByBacklog, ByOldest, BySeen}, order) {
		return admin.Devices{}, fmt.Errorf("sort %q is not name, %s, %s or %s", order, ByBacklog, ByOldest, BySeen)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	q := newQuery(filter)
	out := admin.Devices{Devices: []admin.Device{}, Loading: r.loading}
	top := ranking{limit: limit}
	if p, ok := r.shelf.find(after); ok {
		top.from, top.afterRank, top.afterName = true, p.slot().vitals().rank(order), []byte(after)
	}
	for _, c := range r.shelf.chunks {
		if q.skips(c) {
			continue
		}
		for i := range c.slots {
			if q.takes(c, i) {
				out.Total++
				out.Online += one(c.slots[i].online)
				top.offer(place{c, i}, c.slots[i].vitals().rank(order))
			}
		}
	}
	for _, p := range top.places {
		out.Devices = append(out.Devices, p.show())
	}
	if top.more {
		out.Next = out.Devices[limit-1].Device
	}
	return out, nil
}

// ranking keeps the first places behind a given one. What is offered comes in the
// order of names, which decides between equal ranks.
type ranking struct {
	limit     int
	from      bool // else from the first on
	afterRank int64
	afterName []byte

	ranks  []int64 // descending
	places []place
	more   bool // some did not fit
}

func (t *ranking) offer(p place, rank int64) {
	if t.from && (rank > t.afterRank || rank == t.afterRank && bytes.Compare(p.chunk.name(p.i), t.afterName) <= 0) {
		return
	}
	i := sort.Search(len(t.ranks), func(k int) bool { return t.ranks[k] < rank })
	if full := len(t.ranks) == t.limit; full {
		t.more = true
		if i == t.limit {
			return
		}
		t.ranks, t.places = t.ranks[:t.limit-1], t.places[:t.limit-1]
	}
	t.ranks, t.places = slices.Insert(t.ranks, i, rank), slices.Insert(t.places, i, p)
}
