package wire

import (
	"encoding/hex"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Subjects of the session (PROTOCOL.md). <device> is always the last token or
// the inbox, so that credentials can be scoped to it.
func OpenSubject(device string) string            { return "fp.open." + device }
func FrameSubject(instance, device string) string { return "fp.in." + instance + "." + device }
func UpSubject(device string) string              { return "fp.up." + device }
func WakeSubject(device string) string            { return "fp.wake." + device }
func InboxPrefix(device string) string            { return "_INBOX_" + device }

// SessionSubject is where the hub answers frames of the session: short, as it
// travels with every ack.
func SessionSubject(device string, s SessionID) string {
	return InboxPrefix(device) + ".s" + s.Tag()
}

// StraySubject is where an instance answers frames of a device of which it has
// no session.
func StraySubject(device, instance string) string {
	return InboxPrefix(device) + ".i" + instance
}

// ParseAnswerSubject takes apart what SessionSubject or StraySubject made: one
// of the results is set, unless s is neither.
func ParseAnswerSubject(device, s string) (tag, instance string) {
	s, ok := strings.CutPrefix(s, InboxPrefix(device)+".")
	if tag, is := strings.CutPrefix(s, "s"); ok && is {
		return tag, ""
	}
	if instance, is := strings.CutPrefix(s, "i"); ok && is {
		return "", instance
	}
	return "", ""
}

// BlockSubject is the ledger's literal subject of one flow.
func BlockSubject(device string, f Flow) string {
	return "fp.blocks." + device + "." + f.Epoch.String() + "." + f.Lane.String()
}

// SessionID names a session; the hub draws it at random.
type SessionID [8]byte

func (s SessionID) String() string { return Epoch(s).String() }

// Tag tells a device's sessions apart.
func (s SessionID) Tag() string { return hex.EncodeToString(s[:3]) }

// Protocol is the session version this code speaks. Version 1 was never released.
const Protocol = 2

// StreamName is the form of the compressed stream that this code speaks (STREAM.md).
const StreamName = "mix-1"

// Open is the request to fp.open.<device>, as JSON. The device is taken from
// the subject, never from here.
type Open struct {
	Protocol int               `json:"protocol"`
	Version  string            `json:"version"`           // of the agent, for people
	Process  string            `json:"process"`           // random per agent process: a new session replaces only this process's older one
	Attempt  uint64            `json:"attempt,omitempty"` // of the process; requests with the same one ask for one session
	HubID    string            `json:"hub_id,omitempty"`  // pinned; empty before the first session
	Token    string            `json:"token,omitempty"`   // the last one made durable
	Order    string            `json:"order"`             // fifo | fresh-first
	Class    string            `json:"class,omitempty"`   // link class
	Flows    []FlowHeld        `json:"flows,omitempty"`   // what the agent still holds, in sending order
	Labels   map[string]string `json:"labels,omitempty"`
	Streams  []string          `json:"streams,omitempty"` // forms of the compressed stream that it can send, best first
}

// FlowHeld is one flow of which the agent still holds sequences.
type FlowHeld struct {
	Flow
	Base  uint64 `json:"base"`
	First uint64 `json:"first"` // lowest sequence held
	Last  uint64 `json:"last"`  // highest sequence assigned and durable
}

// OpenReply answers Open. Exactly one of Error and Session is set.
type OpenReply struct {
	Protocol   int            `json:"protocol"`
	Error      *SessionError  `json:"error,omitempty"`
	Session    *Epoch         `json:"session,omitempty"` // 16 hex digits
	Instance   string         `json:"instance,omitempty"`
	HubID      string         `json:"hub_id"`
	Token      string         `json:"token,omitempty"` // to be made durable, then confirmed by a frame
	Received   []FlowReceived `json:"received,omitempty"`
	MaxPayload int            `json:"max_payload,omitempty"` // bytes of one frame
	Window     int            `json:"window,omitempty"`      // bytes in flight the hub allows
	Time       int64          `json:"time"`                  // hub's clock, Unix milliseconds
	Notice     string         `json:"notice,omitempty"`      // for a person: e.g. "clone_or_restored_copy"
	Stream     string         `json:"stream,omitempty"`      // the offered form that the hub reads; none: blocks only
	Partial    []Partial      `json:"partial,omitempty"`     // blocks that have come in part, a slot each
}

// FlowReceived is the hub's received set of one flow.
type FlowReceived struct {
	Flow
	Ranges Ranges `json:"ranges"`
}

// Codes of SessionError.
const (
	CodeWrongHub    = "wrong_hub"   // hub_id differs from the pinned one
	CodeProtocol    = "protocol"    // version or content not understood
	CodeGap         = "gap"         // a frame counter was skipped
	CodeCorrupt     = "corrupt"     // a frame could not be decoded
	CodePartial     = "partial"     // a block was partly received already: recut
	CodeEarly       = "early"       // fifo: something before it is missing
	CodeReplaced    = "replaced"    // a newer session of the same process, or too many
	CodeIdle        = "idle"        // nothing heard for too long
	CodeUnavailable = "unavailable" // the hub cannot store now: full, no leader
	CodeStopping    = "stopping"    // the instance shuts down
	CodeRefused     = "refused"     // limits or access
)

// SessionError says why a session was refused or ended.
type SessionError struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

func (e *SessionError) Error() string { return e.Code + ": " + e.Detail }

// FrameType is the first byte of a frame, either direction.
type FrameType uint8

// Frames of the agent (1–15) and of the hub (16–31).
const (
	FrameBlock   FrameType = 1  // body: one block
	FramePing    FrameType = 2  // no body; answered by an ack
	FrameConfirm FrameType = 3  // body: the token, now durable
	FrameDrained FrameType = 4  // body: an epoch, of which nothing more will come
	FrameBye     FrameType = 5  // no body: the agent ends the session
	FrameStream  FrameType = 6  // body: one block, in the compressed stream of the session
	FrameChunk   FrameType = 7  // body: a Chunk of a block that is too large for one frame
	FrameAck     FrameType = 16 // body: Ack
	FrameEnd     FrameType = 17 // body: SessionError
)

// Frame is one message of an agent on fp.in.<instance>.<device>.
type Frame struct {
	Type     FrameType
	Session  SessionID // not decoded: see Of
	Counter  uint64    // 1, 2, 3 … within the session, all types
	Body     []byte    // aliases the input on decode
	Backfill bool      // block, stream, chunk: newer messages of the lane went ahead
	Lazy     bool      // the same: nobody waits for the ack

	head  []byte // of a decoded frame: what precedes its check
	check uint32
}

// Ack is the hub's answer on the session subject. Flows holds the received set
// of every flow that changed since the last ack; Counter is the last frame that
// was taken in (not: stored).
type Ack struct {
	Counter uint64
	Flows   []FlowReceived
}

// Heartbeat is the agent's report on fp.up.<device>, as JSON: at session start,
// when the class of the link changes, and every Every seconds.
type Heartbeat struct {
	Version    string                 `json:"version"`
	Process    string                 `json:"process"`
	Epoch      string                 `json:"epoch,omitempty"`
	Every      int                    `json:"every"` // seconds to the next
	Started    int64                  `json:"started"`
	Now        int64                  `json:"now,omitempty"` // the agent's clock when this arrives, as near as it can tell: Unix milliseconds
	Class      string                 `json:"class,omitempty"`
	Backlog    map[string]LaneBacklog `json:"backlog"`
	DiskUsed   int64                  `json:"disk_used"`
	DiskMax    int64                  `json:"disk_max"`
	Dropped    map[string]uint64      `json:"dropped,omitempty"`
	Quarantine uint64                 `json:"quarantine,omitempty"` // segments
	Labels     map[string]string      `json:"labels,omitempty"`
	Error      *LastError             `json:"error,omitempty"` // once in a session, and again when there is a newer one
}

// LastError is what last was wrong with an agent, or is.
type LastError struct {
	Text string `json:"text"`
	Time int64  `json:"time"` // Unix milliseconds of the agent's clock
}

// NewLastError makes a text fit for a heartbeat.
func NewLastError(text string, at time.Time) *LastError {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	for len(text) > maxText {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return &LastError{Text: text, Time: at.UnixMilli()}
}

// LaneBacklog is what one lane still holds.
type LaneBacklog struct {
	Messages uint64 `json:"messages"`
	Bytes    int64  `json:"bytes"`
	Oldest   int64  `json:"oldest,omitempty"` // Unix milliseconds of acceptance
}
