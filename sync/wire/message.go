package wire

import "errors"

// Message is one message as a publisher handed it in. Its sequence is implied
// by its place in a block.
type Message struct {
	Subject string
	Payload []byte
	Headers []Pair // the publisher's own, in the order given
	ID      string // publisher id; empty if none
	Time    int64  // Unix milliseconds: the publisher's time, else acceptance
	TTL     int64  // milliseconds from acceptance; 0 means it never expires

	// Unsynced reports that the host's clock was not set when the message was accepted.
	Unsynced bool
	// Blank is the reason why the content was removed after acceptance. A blank
	// entry keeps its sequence and has no subject, payload, headers or id.
	Blank Reason
}

func (m Message) isBlank() bool { return m.Blank != 0 }

var errNoBlank = errors.New("no message is blank, though the header says so")

// Pair is one header.
type Pair struct{ Key, Value string }

// Size is what the message counts for when blocks and limits are measured.
func (m *Message) Size() int {
	n := len(m.Subject) + len(m.Payload) + len(m.ID)
	for _, h := range m.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}
