package wire

import (
	"encoding/binary"
	"slices"
	"strings"
)

// StreamDecoder reads what a StreamEncoder wrote. It is not safe for concurrent
// use. It holds at most about 130 KB (most of it subjects, if there are many) besides the block it returned last, and a
// frame of MaxStreamRaw bytes takes it some 20 ms.
type StreamDecoder struct {
	streamState
	raw   []byte
	ids   int // bytes of the ids of the frame, written out
	block Block
	err   error
}

// NewStreamDecoder returns the decoder of a new session.
func NewStreamDecoder() *StreamDecoder {
	return &StreamDecoder{streamState: newStreamState()}
}

// Decode returns the block of the next frame, valid until the next call of
// Decode or Release. After an error the stream is over: every later call
// returns the same error.
func (d *StreamDecoder) Decode(body []byte) (*Block, error) {
	if d.err != nil {
		return nil, d.err
	}
	if d.err = d.read(body); d.err != nil {
		d.Release()
		d.streamState = streamState{}
		return nil, d.err
	}
	return &d.block, nil
}

// Release lets go of the block that Decode returned.
func (d *StreamDecoder) Release() {
	d.block, d.raw = Block{}, nil
}

// unpacked reads a frame through the model. Its cursor is what came so far.
type unpacked struct {
	cursor
	*streamModel
}

// pull takes n more bytes out of the model.
func (u *unpacked) pull(n int) {
	if u.err == nil && (n < 0 || n > MaxStreamRaw-len(u.b)) {
		u.fail(ErrLimit, "a frame holds more than %d bytes", MaxStreamRaw)
	}
	for ; n > 0 && u.err == nil; n-- {
		u.b = append(u.b, u.code(0))
		if u.spare() < 0 {
			u.fail(ErrCorrupt, "the frame is cut off")
		}
	}
}

func (u *unpacked) u8() byte {
	u.pull(1)
	return u.cursor.u8()
}

func (u *unpacked) bytes(n int) []byte {
	u.pull(n)
	return u.cursor.bytes(n)
}

func (u *unpacked) uvarint() uint64 {
	for n := 0; n < binary.MaxVarintLen64 && u.err == nil; n++ {
		if u.pull(1); u.err == nil && u.b[len(u.b)-1] < 0x80 {
			break
		}
	}
	return u.cursor.uvarint()
}

func (u *unpacked) varint() int64 { return unzigzag(u.uvarint()) }

func (u *unpacked) upTo(limit int, what string) int {
	return u.within(u.uvarint(), limit, what)
}

// read turns a frame into d.block.
func (d *StreamDecoder) read(body []byte) error {
	d.model.start(body, true)
	c := &unpacked{cursor{b: d.raw[:0], part: "stream"}, d.model}
	b := &d.block
	d.ids = 0
	*b = Block{Messages: b.Messages[:0]}
	ahead := d.getHead(c, b)
	for c.err == nil && uint64(len(b.Messages)) < b.Count {
		b.Messages = append(b.Messages, d.getRow(c))
	}
	d.raw = c.b
	if c.err == nil && c.spare() > 4 {
		c.fail(ErrCorrupt, "%d bytes after the last row", c.spare()-4)
	}
	if c.err != nil {
		return c.err
	}
	b.Accepted = b.Messages[0].Time + ahead
	if err := b.check(); err != nil {
		c.fail(ErrCorrupt, "%v", err)
	}
	if b.Blanked && !slices.ContainsFunc(b.Messages, Message.isBlank) {
		c.fail(ErrCorrupt, "%v", errNoBlank)
	}
	d.flows[d.flow].next = b.First + b.Count
	b.Subjects = liveSubjects(b.Messages)
	return c.err
}

// getHead returns how far the acceptance lies ahead of the first message's time.
func (d *StreamDecoder) getHead(c *unpacked, b *Block) (accepted int64) {
	c.begin(fieldHead)
	head := c.u8()
	if head&^byte(knownHead) != 0 {
		c.fail(ErrVersion, "head %#02x", head)
	}
	b.Count = uint64(c.upTo(MaxCount-1, "the number of messages")) + 1
	c.begin(fieldFlow)
	switch head & (headFlowKnown | headFlowNew) {
	case headFlowNew:
		f := streamFlow{Flow: Flow{Lane: Lane(c.u8())}}
		copy(f.Epoch[:], c.bytes(epochSize))
		f.base = c.uvarint()
		f.next = f.base
		d.addFlow(f)
	case headFlowKnown:
		d.flow = int(c.u8())
	case headFlowKnown | headFlowNew:
		c.fail(ErrCorrupt, "a flow both known and new")
	}
	if c.err == nil && d.flow >= len(d.flows) {
		c.fail(ErrCorrupt, "flow %d of %d", d.flow, len(d.flows))
	}
	if c.err != nil {
		return 0
	}
	f := &d.flows[d.flow]
	b.Kind, b.Flow, b.Base, b.First = KindMessages, f.Flow, f.base, f.next
	b.Blanked = head&headBlanked != 0
	if head&headFirst != 0 {
		ahead := c.uvarint()
		if b.First = f.base + ahead; b.First < ahead {
			c.fail(ErrCorrupt, "base %d and first sequence %d beyond it overflow", f.base, ahead)
		}
	}
	if head&headAccepted != 0 {
		accepted = c.varint()
	}
	return accepted
}

func (d *StreamDecoder) getRow(c *unpacked) (m Message) {
	c.begin(fieldControl)
	ctl, extras := c.uvarint(), byte(0)
	if ctl&1 != 0 {
		c.begin(fieldExtras)
		extras = c.u8()
		if extras&^byte(knownRow) != 0 {
			c.fail(ErrVersion, "extras %#02x", extras)
		}
	}
	m.Unsynced = extras&rowUnsynced != 0
	c.begin(fieldTime)
	// A sum that wraps lies outside the years 1 to 9999 too.
	if d.time += c.varint(); d.time < MinTime || d.time > MaxTime {
		c.fail(ErrCorrupt, "time %d ms is not in the years 1 to 9999", d.time)
	}
	m.Time = d.time
	if extras&rowTTL != 0 {
		c.begin(fieldTTL)
		ttl := c.uvarint()
		if c.err == nil && (ttl == 0 || ttl > MaxTTL) {
			c.fail(ErrCorrupt, "ttl %d ms is not in 1 to %d", ttl, int64(MaxTTL))
		}
		m.TTL = int64(ttl)
	}
	if extras&rowBlank != 0 {
		c.begin(fieldReason)
		if m.Blank = Reason(c.u8()); c.err == nil && !m.Blank.Valid() {
			c.fail(ErrVersion, "blank for %s", m.Blank)
		}
		if ctl>>1 != 0 || extras&(rowHeaders|rowSameSet|rowID) != 0 {
			c.fail(ErrCorrupt, "blank, but not empty")
		}
		return m
	}
	id := d.getSubject(c, ctl>>1, &m)
	d.getSet(c, extras, &m)
	if extras&rowID != 0 {
		d.getID(c, &m)
	}
	c.begin(fieldLength)
	n := c.lengthFrom(d.length(id), c.varint())
	if c.err != nil {
		return m
	}
	d.beginPayload(id)
	if m.Payload = c.bytes(n); c.err == nil {
		d.arrive(id, len(m.Payload))
	}
	return m
}

// getSubject returns the subject's number, −1 if the session does not remember it.
func (d *StreamDecoder) getSubject(c *unpacked, ref uint64, m *Message) int {
	id := -1
	switch ref {
	case refNew:
		c.begin(fieldSubject)
		s := string(c.bytes(int(c.u8())))
		if c.err != nil {
			return -1
		}
		if err := CheckSubject(s); err != nil {
			c.fail(ErrCorrupt, "%v", err)
			return -1
		}
		m.Subject = s
		return d.addSubject(s)
	case refNext:
		id = d.predicted()
	default:
		if ref -= refKnown; ref < uint64(len(d.subjects)) {
			id = int(ref)
		}
	}
	if id < 0 || c.err != nil {
		c.fail(ErrCorrupt, "a subject that the session does not know")
		return -1
	}
	m.Subject = d.subjects[id]
	return id
}

func (d *StreamDecoder) getSet(c *unpacked, extras byte, m *Message) {
	switch extras & (rowHeaders | rowSameSet) {
	case 0:
		return
	case rowHeaders:
		c.begin(fieldHeaders)
		var set []Pair
		for range c.upTo(MaxHeaders, "the number of headers") {
			key := string(c.bytes(c.upTo(MaxHeaders, "the length of a header")))
			value := string(c.bytes(c.upTo(MaxHeaders, "the length of a header")))
			if c.err != nil {
				return
			}
			set = append(set, Pair{key, value})
		}
		if err := CheckHeaders(set); c.err == nil && err != nil {
			c.fail(ErrCorrupt, "%v", err)
		}
		if c.err != nil {
			return
		}
		d.headers = set
	case rowHeaders | rowSameSet:
		c.fail(ErrCorrupt, "headers both new and as before")
	}
	if len(d.headers) == 0 {
		c.fail(ErrCorrupt, "a header set that is empty")
	}
	m.Headers = d.headers
}

func (d *StreamDecoder) getID(c *unpacked, m *Message) {
	c.begin(fieldID)
	p, n := int(c.u8()), int(c.u8())
	if p > len(d.id) {
		c.fail(ErrCorrupt, "an id shares %d bytes of %d", p, len(d.id))
		return
	}
	var s strings.Builder
	s.WriteString(d.id[:p])
	s.Write(c.bytes(n))
	if err := CheckID(s.String()); c.err == nil && err != nil {
		c.fail(ErrCorrupt, "%v", err)
	}
	d.id = s.String()
	if d.ids += len(d.id); d.ids > maxStreamIDs {
		c.fail(ErrLimit, "the ids are longer than %d bytes together", maxStreamIDs)
	}
	m.ID = d.id
}
