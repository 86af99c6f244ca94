package deadletter

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
)

// Headers of letters, next to those of the message.
const (
	HdrReason     = "Fieldpost-Reason"
	HdrDetail     = "Fieldpost-Detail"   // for people
	HdrConsumer   = "Fieldpost-Consumer" // for a retry that came back: whom it was offered to
	HdrDeliveries = "Fieldpost-Deliveries"
	HdrStream     = "Fieldpost-Stream" // where the message was first, and its sequence there
	HdrStreamSeq  = "Fieldpost-Stream-Seq"
	HdrRetry      = "Fieldpost-Retry"   // how often it was retried; absent for never
	HdrSubject    = "Fieldpost-Subject" // of messages in RETRY: the original one
	HdrBody       = "Fieldpost-Body"    // why there is none: gone or too_large
	HdrGap        = "Fieldpost-Gap"
	hdrID         = nats.MsgIdHdr // unique by stream, sequence and consumer
)

// Values of HdrBody.
const (
	BodyGone     = "gone"
	BodyTooLarge = "too_large"
)

const (
	deadPrefix  = "dead."
	retryPrefix = "retry."
	// unknown takes the place of the subject of a message that is gone.
	unknown    = "unknown"
	maxSubject = 1 << 10 // bytes, of what a header says
	maxRetries = 1 << 20 // counted
)

// letter is the message that DEAD gets. m is nil if the message is gone.
func letter(g given, m *store.Stored, id string, maxPayload int) store.Msg {
	at := origin{stream: g.Stream, subject: unknown, seq: g.Seq, consumer: g.Consumer}
	out := store.Msg{Header: nats.Header{}}
	detail := words(g.Detail)
	if m != nil {
		if at.subject = m.Subject; !isLiteral(m.Subject) {
			at.subject = unknown
			detail = strings.TrimSpace(detail + fmt.Sprintf(" (its subject %.200q cannot be one in DEAD)", m.Subject))
		}
		if g.Stream == store.Retry {
			at.follow(m)
		}
		out.Data = m.Data
		for k, v := range m.Header {
			if !ofJetStream(k) && !ofLetter(k) {
				out.Header[k] = v
			}
		}
	}
	h := out.Header
	h[HdrReason] = []string{g.Reason}
	h[HdrConsumer] = []string{at.consumer}
	h[HdrDeliveries] = []string{strconv.FormatUint(g.Deliveries, 10)}
	h[HdrStream] = []string{at.stream}
	h[HdrStreamSeq] = []string{strconv.FormatUint(at.seq, 10)}
	h[hdrID] = []string{id}
	if detail != "" {
		h[HdrDetail] = []string{detail}
	}
	if at.retry > 0 {
		h[HdrRetry] = []string{strconv.FormatUint(at.retry, 10)}
	}
	out.Subject = deadPrefix + at.stream + "." + at.subject
	switch {
	case m == nil:
		withoutBody(&out, BodyGone, "the message has left its stream before the hub could keep it")
	case size(&out) > maxPayload:
		withoutBody(&out, BodyTooLarge, fmt.Sprintf("with these headers the message of %d bytes is too large for DEAD; as long as it is there, it can be read from %s", len(m.Data), g.Stream))
	}
	if size(&out) > maxPayload { // by headers alone
		for k := range out.Header {
			if !ofLetter(k) && k != hdrID {
				delete(out.Header, k)
			}
		}
	}
	return out
}

// shrink drops the body of a letter that DEAD does not take; it reports whether
// there was one.
func shrink(m *store.Msg) bool {
	if m.Header.Get(HdrBody) != "" || len(m.Data) == 0 {
		return false
	}
	withoutBody(m, BodyTooLarge, fmt.Sprintf("the message of %d bytes is larger than DEAD takes", len(m.Data)))
	return true
}

// withoutBody makes a letter say why it has none.
func withoutBody(m *store.Msg, why, detail string) {
	m.Data = nil
	m.Header[HdrBody] = []string{why}
	if own := m.Header.Get(HdrDetail); own != "" {
		detail = own + " (" + detail + ")"
	}
	m.Header[HdrDetail] = []string{detail}
}

// room for what a batch adds to a message: its id, number and guard.
const batchRoom = 256

// size is what the server counts, at most.
func size(m *store.Msg) int {
	n := len(m.Data) + len("NATS/1.0\r\n\r\n") + batchRoom
	for k, vs := range m.Header {
		for _, v := range vs {
			n += len(k) + len(v) + len(": \r\n")
		}
	}
	return n
}

// origin is where a message was first.
type origin struct {
	stream, subject, consumer string
	seq, retry                uint64
}

// follow leads from a message of RETRY to where it came from. Whatever its
// headers do not say well stays as it is in RETRY.
func (o *origin) follow(m *store.Stored) {
	o.retry = 1
	if n, err := strconv.ParseUint(m.Header.Get(HdrRetry), 10, 64); err == nil && n > 0 && n <= maxRetries {
		o.retry = n
	}
	if group, ok := strings.CutPrefix(m.Subject, retryPrefix); ok && isToken(group) {
		o.consumer = group // the next retry has to reach those who read this one
	}
	stream, subject := m.Header.Get(HdrStream), m.Header.Get(HdrSubject)
	seq, err := strconv.ParseUint(m.Header.Get(HdrStreamSeq), 10, 64)
	if isToken(stream) && isLiteral(subject) && err == nil {
		o.stream, o.subject, o.seq = stream, subject, seq
	}
}

// isLiteral reports whether s is a subject that can be published to.
func isLiteral(s string) bool {
	if len(s) > maxSubject {
		return false
	}
	for t := range strings.SplitSeq(s, ".") {
		if !isToken(t) {
			return false
		}
	}
	return true
}

// ofJetStream reports whether a header is an order to JetStream, or what it has
// added: neither belongs to the message in its next stream.
func ofJetStream(k string) bool {
	k = strings.ToLower(k)
	for _, p := range []string{"nats-expected-", "nats-batch-", "nats-schedule", "nats-msg-id", "nats-rollup", "nats-ttl", "nats-incr", "nats-counter", "nats-marker", "nats-required-"} {
		if strings.HasPrefix(k, p) {
			return true
		}
	}
	return false
}

// ofLetter reports whether a header is one that letters and retries add.
func ofLetter(k string) bool {
	switch k {
	case HdrReason, HdrDetail, HdrConsumer, HdrDeliveries, HdrStream, HdrStreamSeq, HdrRetry, HdrSubject, HdrBody:
		return true
	}
	return false
}
