package registry

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
)

// maxLinks is how many changes between online and offline are kept of a device.
const maxLinks = 16

// links are a device's last changes between online and offline, the oldest first
// and each the opposite of the one before. They are held and stored in few bytes,
// three a change mostly: for each, as a uvarint, the time in seconds before the
// next one's (the first, which is the newest: since 1970) times eight, plus its
// place in linkKinds. They are never changed in place.
type links []byte

// linkKinds are what can happen, in the order in which they are stored: no other
// fits, and none may move.
var linkKinds = [8]admin.Link{
	{Online: false},
	{Online: true},
	{Online: true, Reason: admin.LinkSession},
	{Online: true, Reason: admin.LinkHeartbeat},
	{Online: false, Reason: admin.LinkEnded},
	{Online: false, Reason: admin.LinkLost},
	{Online: false, Reason: admin.LinkSilent},
	{Online: false, Reason: admin.LinkHubStarted},
}

// list decodes. What cannot be read, and what is before it, is left out: it comes
// from a bucket.
func (l links) list() []admin.Link {
	var out []admin.Link
	at := int64(0)
	for len(l) > 0 && len(out) < maxLinks {
		v, n := binary.Uvarint(l)
		if n <= 0 || v>>3 > 1<<40 {
			break
		}
		l = l[n:]
		if at -= int64(v >> 3); len(out) == 0 {
			at = int64(v >> 3)
		}
		link := linkKinds[v&7]
		link.At = time.Unix(at, 0).UTC()
		out = append(out, link)
	}
	slices.Reverse(out)
	return out
}

// encodeLinks is the inverse of list, for what is in order.
func encodeLinks(list []admin.Link) links {
	if len(list) == 0 {
		return nil
	}
	list = list[max(0, len(list)-maxLinks):]
	var out links
	next := int64(0)
	for i := len(list) - 1; i >= 0; i-- {
		k := list[i]
		at := max(k.At.Unix(), 0)
		kind := slices.Index(linkKinds[:], admin.Link{Online: k.Online, Reason: k.Reason})
		if kind < 0 {
			kind = one(k.Online)
		}
		step := at
		if out != nil {
			step = max(next-at, 0)
		}
		out = binary.AppendUvarint(out, uint64(step)<<3|uint64(kind))
		next = at
	}
	return slices.Clip(out)
}

// with returns the links and a new one.
func (l links) with(online bool, reason string, now time.Time) links {
	list := l.list()
	if n := len(list); n > 0 && now.Before(list[n-1].At) {
		now = list[n-1].At // the hub's clock was set back
	}
	return encodeLinks(append(list, admin.Link{At: now, Online: online, Reason: reason}))
}

// mergeLinks returns what two instances know together of a device that is online,
// or is not. Of changes to the same state the first counts: the other instance
// only found out later.
func mergeLinks(mine, theirs links, online bool) links {
	switch {
	case len(theirs) == 0 || slices.Equal(mine, theirs):
		return mine
	case len(mine) == 0:
		mine = theirs
	}
	a, b := mine.list(), theirs.list()
	var out []admin.Link
	for len(a) > 0 || len(b) > 0 {
		var k admin.Link
		if len(b) == 0 || len(a) > 0 && !b[0].At.Before(a[0].At) {
			k, a = a[0], a[1:]
			if len(b) > 0 && b[0] == k {
				b = b[1:]
			}
		} else {
			k, b = b[0], b[1:]
		}
		if n := len(out); n == 0 || out[n-1].Online != k.Online {
			out = append(out, k)
		}
	}
	if n := len(out); n > 0 && out[n-1].Online != online {
		out = out[:n-1] // an instance was wrong about it
	}
	return encodeLinks(out)
}
