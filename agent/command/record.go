package command

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// fileHead begins a log: a name, and the version of the format as the last byte.
const fileHead = "FPCMDLG\x01"

// Sizes of a record (FORMAT.md).
const (
	recordHead = 13 // size, check, kind, size of the head
	maxHead    = 64 << 10
	maxData    = wire.MaxCommand
	maxRecord  = recordHead + maxHead + maxData
)

// kind is what a record tells.
type kind uint8

const (
	kindCursor     kind = 1 + iota // up to where the stream was taken
	kindTaken                      // a command; data: its payload
	kindLent                       // handed to a program
	kindReturned                   // given back by the program
	kindCancel                     // to be given up when its lease ends
	kindSettled                    // final; data: the result
	kindNoted                      // the hub knows
	kindRemembered                 // data: ids that are settled and known to the hub, 25 bytes each
	kindEnd
)

// head is the JSON part of a record. Which fields a kind has is in FORMAT.md.
// Times of the store's clock are milliseconds; that clock is never set.
type head struct {
	Clock int64  `json:"clock"` // when this was written
	ID    string `json:"id,omitempty"`

	Stream string `json:"stream,omitempty"`
	After  uint64 `json:"after,omitempty"`

	Subject    string `json:"subject,omitempty"`
	Sent       int64  `json:"sent,omitempty"` // hub's clock, Unix milliseconds
	Ends       int64  `json:"ends,omitempty"` // its time to live; clock
	AckWait    int64  `json:"ack_wait_ms,omitempty"`
	MaxDeliver int    `json:"max_deliver,omitempty"`
	Deliveries int    `json:"deliveries,omitempty"`
	Lent       int64  `json:"lent,omitempty"` // when it was handed out last, if it is still; clock
	Cancel     bool   `json:"cancel,omitempty"`

	State  wire.CommandState `json:"state,omitempty"`
	At     int64             `json:"at,omitempty"` // of the state; device's clock, Unix milliseconds
	Reason string            `json:"reason,omitempty"`
	Noted  bool              `json:"noted,omitempty"`
}

type record struct {
	kind kind
	head
	data []byte
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errRecord = errors.New("command: no record")

// appendRecord encodes r.
func appendRecord(dst []byte, r *record) []byte {
	h, err := json.Marshal(r.head)
	if err != nil {
		panic("command: " + err.Error()) // strings and numbers marshal
	}
	at := len(dst)
	dst = binary.BigEndian.AppendUint32(dst, uint32(recordHead+len(h)+len(r.data)))
	dst = append(dst, 0, 0, 0, 0, byte(r.kind))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(h)))
	dst = append(append(dst, h...), r.data...)
	binary.BigEndian.PutUint32(dst[at+4:], check(dst[at:]))
	return dst
}

// check is of everything in an encoded record but itself.
func check(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:4], castagnoli), castagnoli, b[8:])
}

// recordSize is the size that the record claims which begins with b; 0: none
// can begin so.
func recordSize(b []byte) int {
	if len(b) < recordHead {
		return 0
	}
	size, h := int(binary.BigEndian.Uint32(b)), int(binary.BigEndian.Uint32(b[9:]))
	if k := kind(b[8]); k == 0 || k >= kindEnd || h < 0 || h > maxHead || size < recordHead+h || size > recordHead+h+maxData {
		return 0
	}
	return size
}

// parseRecord decodes one record that takes all of b; data aliases it.
func parseRecord(b []byte) (record, error) {
	if n := recordSize(b); n == 0 || n != len(b) || check(b) != binary.BigEndian.Uint32(b[4:]) {
		return record{}, errRecord
	}
	r := record{kind: kind(b[8])}
	h := recordHead + int(binary.BigEndian.Uint32(b[9:]))
	if err := json.Unmarshal(b[recordHead:h], &r.head); err != nil {
		return record{}, fmt.Errorf("%w: %w", errRecord, err)
	}
	r.data = b[h:]
	if r.kind == kindRemembered && len(r.data)%rememberedSize != 0 {
		return record{}, errRecord
	}
	return r, nil
}
