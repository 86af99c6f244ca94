package command

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// An id of which everything is said and done is remembered, so that the command
// is not handed out again when the hub sends it once more: its stream was
// recreated, or another instance knows less.
const (
	maxRemembered   = 100_000
	rememberAtLeast = 24 * 60 * 60 * 1000 // milliseconds
	rememberedSize  = 16 + 1 + 8
)

type key [16]byte

// keyOf takes the place of an id: an id has up to 64 bytes.
func keyOf(id string) key {
	sum := sha256.Sum256([]byte(id))
	return key(sum[:])
}

type settled struct {
	state uint8 // index in finals
	until int64 // clock
}

// finals are the states by their number on disk.
var finals = [...]wire.CommandState{wire.CommandAcked, wire.CommandFailed, wire.CommandExpired, wire.CommandCancelled}

func numberOf(s wire.CommandState) uint8 {
	for i, f := range finals {
		if f == s {
			return uint8(i)
		}
	}
	return 0
}

// memory is what is remembered: the newest maxRemembered.
type memory struct {
	ids   map[key]settled
	order []key // by when they came; may hold some that were forgotten
}

func (m *memory) add(k key, s settled) {
	if m.ids == nil {
		m.ids = map[key]settled{}
	}
	if _, ok := m.ids[k]; !ok {
		m.order = append(m.order, k)
	}
	m.ids[k] = s
	for len(m.ids) > maxRemembered {
		delete(m.ids, m.order[0])
		m.order = m.order[1:]
	}
}

func (m *memory) state(id string) (wire.CommandState, bool) {
	s, ok := m.ids[keyOf(id)]
	return finals[s.state], ok
}

// forget drops what need not be known any more.
func (m *memory) forget(now int64) {
	kept := make([]key, 0, len(m.order))
	for _, k := range m.order {
		switch s, ok := m.ids[k]; {
		case !ok:
		case s.until <= now:
			delete(m.ids, k)
		default:
			kept = append(kept, k)
		}
	}
	m.order = kept
}

// encode is the data of a record of that many ids from i on.
func (m *memory) encode(i, n int) (out []byte) {
	for _, k := range m.order[i : i+n] {
		s := m.ids[k]
		out = append(append(out, k[:]...), s.state)
		out = binary.BigEndian.AppendUint64(out, uint64(s.until))
	}
	return out
}

func (m *memory) decode(data []byte) {
	for ; len(data) >= rememberedSize; data = data[rememberedSize:] {
		s := settled{data[16] % uint8(len(finals)), int64(binary.BigEndian.Uint64(data[17:]))}
		m.add(key(data), s)
	}
}
