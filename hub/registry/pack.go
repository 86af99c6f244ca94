package registry

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"
	"unique"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// A packed device is what its record holds, without what the shelf has already:
// the name, its labels (which many devices share) and whether it is online. It
// lives in memory only, so it has no version.

// Flags of a packed device.
const (
	packLeft   = 1 << iota // entry.left is the record's process
	packClones             // reports of clones follow
	packClock              // the offset of the clock follows
	packError              // the last error follows
)

// lanes are written as one byte.
var packLanes = []string{"", "urgent", "normal", "bulk"}

var noLabels unique.Handle[string]

// pack returns the packed form of a record and of its labels.
func pack(rec *record, rev uint64, left bool) (string, unique.Handle[string]) {
	var space [512]byte
	d, flags := &rec.Device, byte(0)
	if left {
		flags |= packLeft
	}
	if d.Clones != nil {
		flags |= packClones
	}
	if d.Clock != nil {
		flags |= packClock
	}
	if d.Error != nil {
		flags |= packError
	}
	b := binary.AppendUvarint(space[:0], rev)
	b = append(b, flags)
	for _, t := range []time.Time{d.Since, d.Seen, d.Created, d.Started, d.Imported, rec.Opened} {
		b = appendTime(b, t)
	}
	for _, s := range []string{rec.Token, d.Version, d.Process, d.Instance, d.Epoch, d.Class} {
		b = appendString(b, s)
	}
	b = binary.AppendVarint(b, int64(d.Every))
	b = binary.AppendVarint(b, d.Disk.Used)
	b = binary.AppendVarint(b, d.Disk.Max)
	b = binary.AppendUvarint(b, d.Quarantine)
	b = appendLen(b, len(d.Backlog), d.Backlog == nil)
	for _, lane := range slices.Sorted(maps.Keys(d.Backlog)) {
		if k := slices.Index(packLanes, lane); k > 0 {
			b = append(b, byte(k))
		} else {
			b = appendString(append(b, 0), lane)
		}
		l := d.Backlog[lane]
		b = binary.AppendUvarint(b, l.Messages)
		b = binary.AppendVarint(b, l.Bytes)
		b = binary.AppendVarint(b, l.Oldest)
	}
	b = appendLen(b, len(d.Dropped), d.Dropped == nil)
	for _, reason := range slices.Sorted(maps.Keys(d.Dropped)) {
		b = binary.AppendUvarint(appendString(b, reason), d.Dropped[reason])
	}
	if d.Clones != nil {
		b = appendTime(binary.AppendUvarint(b, d.Clones.Reports), d.Clones.Last)
	}
	if d.Clock != nil {
		b = binary.AppendVarint(b, *d.Clock)
	}
	if d.Error != nil {
		b = appendTime(appendString(b, d.Error.Text), d.Error.At)
	}
	b = append(b, rec.History...) // to the end
	return string(b), packLabels(d.Labels)
}

// packLabels returns labels in a form that equal ones share.
func packLabels(labels map[string]string) unique.Handle[string] {
	if labels == nil {
		return noLabels
	}
	var space [512]byte
	b := space[:0]
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		b = appendString(appendString(b, k), labels[k])
	}
	return unique.Make(string(b))
}

// packedRev is the revision alone.
func packedRev(packed string) uint64 {
	u := unpacker(packed)
	return u.uvarint()
}

// unpack is the inverse of pack, but for what the shelf has.
func unpack(packed string, labels unique.Handle[string]) (rec record, rev uint64, left bool) {
	u := unpacker(packed)
	d := &rec.Device
	rev = u.uvarint()
	flags := u.byte()
	for _, t := range []*time.Time{&d.Since, &d.Seen, &d.Created, &d.Started, &d.Imported, &rec.Opened} {
		*t = u.time()
	}
	for _, s := range []*string{&rec.Token, &d.Version, &d.Process, &d.Instance, &d.Epoch, &d.Class} {
		*s = u.string()
	}
	d.Every = int(u.varint())
	d.Disk = admin.Disk{Used: u.varint(), Max: u.varint()}
	d.Quarantine = u.uvarint()
	if n, ok := u.len(); ok {
		d.Backlog = make(map[string]wire.LaneBacklog, n)
		for range n {
			k := u.byte()
			lane := packLanes[k]
			if k == 0 {
				lane = u.string()
			}
			d.Backlog[lane] = wire.LaneBacklog{Messages: u.uvarint(), Bytes: u.varint(), Oldest: u.varint()}
		}
	}
	if n, ok := u.len(); ok {
		d.Dropped = make(map[string]uint64, n)
		for range n {
			reason := u.string()
			d.Dropped[reason] = u.uvarint()
		}
	}
	if flags&packClones != 0 {
		d.Clones = &admin.Clones{Reports: u.uvarint(), Last: u.time()}
	}
	if flags&packClock != 0 {
		clock := u.varint()
		d.Clock = &clock
	}
	if flags&packError != 0 {
		d.Error = &admin.DeviceError{Text: u.string(), At: u.time()}
	}
	if len(u) > 0 {
		rec.History = links(u)
	}
	if labels != noLabels {
		d.Labels = map[string]string{}
		for l := unpacker(labels.Value()); len(l) > 0; {
			k := l.string()
			d.Labels[k] = l.string()
		}
	}
	return rec, rev, flags&packLeft != 0
}

// peek reads of a packed device what it is ranked by.
func peek(packed string) (v vitals) {
	u := unpacker(packed)
	u.uvarint() // revision
	u.byte()
	for k := range 6 { // times
		ms := u.varint()
		if k == 1 && ms > 0 { // seen, see appendTime
			v.seen = ms - 1
		}
	}
	for range 6 {
		u.string()
	}
	for range 4 { // every, disk, quarantine
		u.uvarint()
	}
	n, _ := u.len()
	for range n {
		if u.byte() == 0 {
			u.string() // an unknown lane's name
		}
		messages := u.uvarint()
		u.varint()
		v.add(messages, u.varint())
	}
	return v
}

// hasLabel asks packed labels.
func hasLabel(labels, key, value string) bool {
	for l := unpacker(labels); len(l) > 0; {
		k, v := l.string(), l.string()
		if k == key {
			return v == value
		}
	}
	return false
}

// appendTime keeps milliseconds, as a time is stored; the zero time is 0.
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, 0)
	}
	ms := t.UnixMilli()
	if ms >= 0 {
		ms++ // 0 stands for none
	}
	return binary.AppendVarint(b, ms)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendLen tells a map that is nil from one that is empty: they are shown
// differently.
func appendLen(b []byte, n int, none bool) []byte {
	if none {
		return append(b, 0)
	}
	return binary.AppendUvarint(b, uint64(n)+1)
}

// unpacker reads what pack has written in this process. It trusts it.
type unpacker string

func (u *unpacker) byte() byte {
	b := (*u)[0]
	*u = (*u)[1:]
	return b
}

func (u *unpacker) uvarint() (v uint64) {
	for shift := 0; ; shift += 7 {
		b := u.byte()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
}

func (u *unpacker) varint() int64 {
	v := u.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (u *unpacker) string() string {
	n := u.uvarint()
	s := string((*u)[:n])
	*u = (*u)[n:]
	return s
}

func (u *unpacker) time() time.Time {
	ms := u.varint()
	switch {
	case ms == 0:
		return time.Time{}
	case ms > 0:
		ms--
	}
	return time.UnixMilli(ms).UTC()
}

func (u *unpacker) len() (n int, ok bool) {
	v := u.uvarint()
	return int(max(v, 1) - 1), v > 0
}
