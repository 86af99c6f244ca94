package agent

import (
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// maxID is the longest publisher id, in bytes: it travels as a header.
const maxID = 255

// ackLevel is what a publisher waits for.
type ackLevel string

const (
	ackDisk   ackLevel = "disk"
	ackMemory ackLevel = "memory"
	ackHub    ackLevel = "hub"
)

func ackParam(r *http.Request) (ackLevel, *problem) {
	switch l := ackLevel(r.URL.Query().Get("ack")); l {
	case "":
		return ackDisk, nil
	case ackDisk, ackMemory, ackHub:
		return l, nil
	default:
		return "", newProblem(codeBadRequest, "ack=%s is not one of disk, memory, hub", l)
	}
}

// receiptJSON answers the publish of one message.
type receiptJSON struct {
	Epoch   *wire.Epoch `json:"epoch,omitempty"`
	Lane    wire.Lane   `json:"lane"`
	Seq     uint64      `json:"seq,omitempty"`
	Durable string      `json:"durable,omitempty"` // where, if that is not simply the disk
}

// publishOne is POST /v1/publish/{subject}.
func (a *Agent) publishOne(w http.ResponseWriter, r *http.Request) *problem {
	began := time.Now()
	subject, err := url.PathUnescape(strings.TrimPrefix(r.URL.EscapedPath(), publishPath))
	if err != nil {
		return newProblem(codeBadSubject, "the subject in the path cannot be unescaped: %v", err)
	}
	if strings.Contains(strings.TrimPrefix(r.URL.EscapedPath(), publishPath), "/") {
		return newProblem(codeBadSubject, "the subject in the path holds a slash; separate tokens by dots, or write %%2F if it is meant")
	}
	m := wire.Message{Subject: subject}
	lane, p := a.fromHeaders(&m, r.Header)
	if p != nil {
		return p
	}
	ack, p := ackParam(r)
	if p != nil {
		return p
	}
	timeout, p := timeoutParam(r)
	if p != nil {
		return p
	}
	// Refuse now what would be refused anyway, before a body is taken into memory.
	if p := a.refuseNow(); p != nil {
		return p
	}
	bd, p := a.readBody(w, r, a.cfg.Socket.MaxPayload, "socket.max_payload")
	if p != nil {
		return p
	}
	m.Payload = bd.b
	msgs := []wire.Message{m}
	if ack == ackMemory {
		return a.answerMemory(w, lane, msgs, bd)
	}
	if ack == ackHub {
		a.expectHub()
	}
	rc, p := a.append(lane, msgs)
	bd.release(a)
	if p != nil {
		return p
	}
	a.metrics.duration.Update(time.Since(began).Seconds())
	if rc.Accepted == 0 {
		w.Header().Set("Fieldpost-Duplicate", "true")
	}
	out := receiptJSON{Epoch: &rc.Flow.Epoch, Lane: rc.Flow.Lane, Seq: rc.First}
	status := http.StatusOK
	if ack == ackHub {
		if status, out.Durable, p = a.awaitHub(r, rc, timeout); p != nil {
			return p
		}
	}
	return writeJSON(w, status, out)
}

// answerMemory answers before the messages are durable. bd is released when they are.
func (a *Agent) answerMemory(w http.ResponseWriter, lane wire.Lane, msgs []wire.Message, bd *body) *problem {
	if p := a.submitLightly(lane, msgs, func() { bd.release(a) }); p != nil {
		return p
	}
	return writeJSON(w, http.StatusAccepted, receiptJSON{Lane: lane, Durable: "memory"})
}

// fromHeaders fills in what the Fieldpost-* headers of a request say.
func (a *Agent) fromHeaders(m *wire.Message, h http.Header) (lane wire.Lane, p *problem) {
	if err := wire.CheckSubject(m.Subject); err != nil {
		return 0, newProblem(codeBadSubject, "%v", err)
	}
	lane = a.lane(m.Subject)
	m.Time = time.Now().UnixMilli()
	for key, values := range h {
		name, ours := strings.CutPrefix(key, "Fieldpost-")
		if !ours {
			continue
		}
		if len(values) != 1 {
			return 0, newProblem(codeBadHeader, "%s is given %d times", key, len(values))
		}
		v := values[0]
		switch name {
		case "Id":
			m.ID, p = v, checkID(v)
		case "Lane":
			lane, p = parseLane(v)
		case "Ttl":
			m.TTL, p = parseTTL(v)
		case "Time":
			m.Time, p = parseTime(v)
		case "Headers":
			m.Headers, p = parseHeaders([]byte(v))
		default:
			p = newProblem(codeBadHeader, "%s is not known; there are Fieldpost-Id, -Lane, -Ttl, -Time and -Headers", key)
		}
		if p != nil {
			return 0, p
		}
	}
	return lane, nil
}

func checkID(id string) *problem {
	switch {
	case id == "" || len(id) > maxID:
		return newProblem(codeBadHeader, "the id is %d bytes long; 1 to %d are allowed", len(id), maxID)
	case !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl) || strings.TrimSpace(id) != id:
		return newProblem(codeBadHeader, "the id %q is not UTF-8, or holds control characters or white space at an end", id)
	}
	return nil
}

func parseLane(s string) (wire.Lane, *problem) {
	l, err := wire.ParseLane(s)
	if err != nil {
		return 0, newProblem(codeBadLane, "%v", err)
	}
	return l, nil
}

// parseTTL returns milliseconds, rounded up: a message never expires early.
func parseTTL(s string) (int64, *problem) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, newProblem(codeBadTTL, "ttl %q is not a duration such as 90s or 24h", s)
	}
	if d <= 0 {
		return 0, newProblem(codeBadTTL, "ttl %q is not more than 0; leave it out for a message that never expires", s)
	}
	return ceilMillis(d), nil
}

func ceilMillis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond != 0 {
		ms++
	}
	return ms
}

func parseTime(s string) (int64, *problem) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || t.UnixMilli() < wire.MinTime || t.UnixMilli() > wire.MaxTime {
		return 0, newProblem(codeBadHeader, "time %q is not RFC 3339, such as 2006-01-02T15:04:05.000Z", s)
	}
	return t.UnixMilli(), nil
}

// parseHeaders reads a JSON object of strings, in the order given.
func parseHeaders(text []byte) ([]wire.Pair, *problem) {
	if !utf8.Valid(text) {
		return nil, newProblem(codeBadHeader, "headers are not valid UTF-8")
	}
	s := scanner{b: text}
	pairs, err := s.pairs()
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return nil, newProblem(codeBadHeader, `headers are not a JSON object of strings such as {"unit":"C"}: %v`, err)
	}
	if err := wire.CheckHeaders(pairs); err != nil {
		return nil, newProblem(codeBadHeader, "%v", err)
	}
	return pairs, nil
}

// checkPayload bounds one message.
func (a *Agent) checkPayload(n int) *problem {
	if limit := a.cfg.Socket.MaxPayload; int64(n) > limit {
		return newProblem(codeTooLarge, "the payload is %d bytes; socket.max_payload is %d", n, limit)
	}
	return nil
}
