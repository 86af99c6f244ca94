package deadletter

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fieldpost/fieldpost/hub/store"
)

// Values of Fieldpost-Reason that this package writes.
const (
	MaxDeliveries = "max_deliveries"
	Terminated    = "terminated"
)

// given is one consumer giving up one message.
type given struct {
	ID         string // of the advisory; the server makes one for each
	Stream     string
	Consumer   string
	Seq        uint64
	Deliveries uint64
	Reason     string
	Detail     string // the client's own words
	Time       time.Time
}

// advisory is the server's JSON, of both kinds.
type advisory struct {
	ID         string    `json:"id"`
	Time       time.Time `json:"timestamp"`
	Stream     string    `json:"stream"`
	Consumer   string    `json:"consumer"`
	StreamSeq  uint64    `json:"stream_seq"`
	Deliveries uint64    `json:"deliveries"`
	Reason     string    `json:"reason"`
}

// parseAdvisory reads what the server published. The subject is what the server
// routes by, so it decides, and the body may not say otherwise.
func parseAdvisory(subject string, data []byte) (given, error) {
	kind, place := MaxDeliveries, ""
	if s, ok := strings.CutPrefix(subject, store.MaxDeliveriesPrefix); ok {
		place = s
	} else if s, ok := strings.CutPrefix(subject, store.TerminatedPrefix); ok {
		kind, place = Terminated, s
	} else {
		return given{}, fmt.Errorf("subject %q is not of an advisory", subject)
	}
	var a advisory
	if err := json.Unmarshal(data, &a); err != nil {
		return given{}, fmt.Errorf("advisory on %s: %w", subject, err)
	}
	switch {
	case a.Stream+"."+a.Consumer != place || !isToken(a.Stream) || !isToken(a.Consumer):
		return given{}, fmt.Errorf("advisory on %s is about consumer %.80q of stream %.80q", subject, a.Consumer, a.Stream)
	case a.StreamSeq == 0 || a.ID == "" || len(a.ID) > 64:
		return given{}, fmt.Errorf("advisory on %s names no message, or has no id", subject)
	}
	return given{
		ID: a.ID, Stream: a.Stream, Consumer: a.Consumer, Seq: a.StreamSeq, Deliveries: a.Deliveries,
		Reason: kind, Detail: a.Reason, Time: a.Time,
	}, nil
}

// removals are the server's words (nats-server 2.15, consumer.go) for a message
// that left the stream while a consumer had it.
var removals = []string{"Message deleted by stream limits", "Unacknowledged message was deleted"}

// removed reports whether nobody gave up: limits or a purge took the message
// while a consumer had it. A client may use the same words for a message that
// is there.
func (g *given) removed(found bool) bool {
	return !found && g.Reason == Terminated && (g.Detail == removals[0] || g.Detail == removals[1])
}

// key names the message and the consumer, for ever: a stream that is made anew
// counts from 1 again. It is a subject's end, and the id of the letter.
func (g *given) key(created time.Time) string {
	return fmt.Sprintf("%s.%s.%s.%d", g.Stream, incarnation(created), g.Consumer, g.Seq)
}

// incarnation tells a stream from its successor of the same name.
func incarnation(created time.Time) string {
	if created.IsZero() {
		return "0"
	}
	return fmt.Sprintf("%x", created.UnixNano())
}

const maxToken = 255 // bytes; of the name of a stream or consumer

// isToken reports whether s can stand in a subject between two dots.
func isToken(s string) bool { return checkToken(s) == nil }

func checkToken(s string) error {
	switch {
	case s == "":
		return errors.New("it is empty")
	case len(s) > maxToken:
		return fmt.Errorf("it is longer than %d bytes", maxToken)
	case !utf8.ValidString(s):
		return errors.New("it is not UTF-8")
	case strings.ContainsAny(s, ".*>"):
		return errors.New("it has a dot or a wildcard")
	case strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		return errors.New("it has white space or a control character")
	}
	return nil
}

const maxDetail = 1 << 10 // bytes

// words makes what a client said fit into a header: one line, UTF-8, bounded.
func words(s string) string {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "�")))
	if len(s) <= maxDetail {
		return s
	}
	n := maxDetail - len("…")
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
