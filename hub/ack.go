package hub

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
)

const (
	ackPrefix  = "$JS.ACK."
	maxAckAsks = 500
	ackFor     = 10 * time.Second // for all of a request
	maxAckBody = maxAckAsks * 1024
	maxReason  = 255
)

// ackToken is what a client hands back: where JetStream takes the ack.
func ackToken(reply string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strings.TrimPrefix(reply, ackPrefix)))
}

// ackSubject is the inverse of ackToken, for streams that clients may read: a
// token must not become a way to publish anywhere else.
func (h *Hub) ackSubject(token string) (string, error) {
	bad := fmt.Errorf("ack %.80q is not one that GET /v1/messages gave", token)
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) > 512 {
		return "", bad
	}
	// [<domain>.<account>.]<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>[.<random>]
	tokens := strings.Split(string(b), ".")
	at := 0
	if len(tokens) > 7 {
		at = 2
	}
	if len(tokens) < at+7 || len(tokens) > at+8 {
		return "", bad
	}
	for _, t := range tokens {
		if t == "" || strings.ContainsFunc(t, func(r rune) bool { return r <= ' ' || r == '*' || r == '>' || r == 0x7f }) {
			return "", bad
		}
	}
	for _, t := range tokens[at+2 : at+7] {
		if _, err := strconv.ParseUint(t, 10, 64); err != nil {
			return "", bad
		}
	}
	if !h.readable(tokens[at]) {
		return "", bad
	}
	return ackPrefix + string(b), nil
}

// readable reports whether GET /v1/messages reads the stream.
func (h *Hub) readable(stream string) bool {
	return stream == store.Retry || slices.ContainsFunc(h.cfg.Routes, func(r Route) bool { return r.Stream == stream })
}

// ack settles messages of a group. It answers when JetStream has it.
func (h *Hub) ack(w http.ResponseWriter, r *http.Request) {
	p := h.running(w)
	if p == nil {
		return
	}
	var in admin.Ack
	if !readJSON(w, r, &in, `{"acks":["…"]}`) {
		return
	}
	body, err := ackBody(in)
	if err == nil && (len(in.Acks) == 0 || len(in.Acks) > maxAckAsks) {
		err = fmt.Errorf("acks holds %d, not 1 to %d", len(in.Acks), maxAckAsks)
	}
	subjects := make([]string, len(in.Acks))
	for i, token := range in.Acks {
		if err == nil {
			subjects[i], err = h.ackSubject(token)
		}
	}
	if err != nil {
		problem(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), ackFor)
	defer cancel()
	for i, subject := range subjects {
		_, err := p.conn.RequestWithContext(ctx, subject, body)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			problem(w, http.StatusNotFound, "not_found", fmt.Sprintf("the group of ack %d of %d does not exist any more", i+1, len(subjects)))
			return
		case err != nil:
			problem(w, http.StatusServiceUnavailable, "unavailable", fmt.Sprintf("ack %d of %d was not confirmed: %v; send it and those behind it again", i+1, len(subjects), err))
			return
		}
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}

// ackBody is what JetStream is told.
func ackBody(in admin.Ack) ([]byte, error) {
	if in.Delay != "" && in.Action != "nak" || in.Reason != "" && in.Action != "term" {
		return nil, errors.New("delay is for action nak, reason for action term")
	}
	if len(in.Reason) > maxReason {
		return nil, fmt.Errorf("reason has more than %d bytes", maxReason)
	}
	switch in.Action {
	case "", "ack":
		return []byte("+ACK"), nil
	case "progress":
		return []byte("+WPI"), nil
	case "term":
		return []byte(strings.TrimSpace("+TERM " + in.Reason)), nil
	case "nak":
		if in.Delay == "" {
			return []byte("-NAK"), nil
		}
		d, err := time.ParseDuration(in.Delay)
		if err != nil || d < 0 {
			return nil, fmt.Errorf("delay %q is not a duration such as 10s", in.Delay)
		}
		return fmt.Appendf(nil, `-NAK {"delay":%d}`, d.Nanoseconds()), nil
	}
	return nil, fmt.Errorf("action %q is not one of ack, nak, term, progress", in.Action)
}
