package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"
)

// Letter is one message of DEAD, without its payload.
type Letter struct {
	Seq        uint64    `json:"seq"`     // in DEAD
	Time       time.Time `json:"time"`    // stored there
	Stream     string    `json:"stream"`  // where the message was; gap for gaps, BLOCKS for poison blocks
	Subject    string    `json:"subject"` // it had there; unknown if it was gone
	Reason     string    `json:"reason"`  // max_deliveries, terminated, or of gaps and poison blocks
	Detail     string    `json:"detail,omitempty"`
	Consumer   string    `json:"consumer,omitempty"`
	Deliveries uint64    `json:"deliveries,omitempty"`
	StreamSeq  uint64    `json:"stream_seq,omitempty"` // in Stream
	Retry      uint64    `json:"retry,omitempty"`      // how often it was retried before
	Size       int       `json:"size"`                 // of the payload, bytes
	Refusal    string    `json:"refusal,omitempty"`    // why it cannot be retried; empty: it can
}

// Letters is GET /v1/dead: one page, the oldest first.
type Letters struct {
	Letters []Letter `json:"letters"`
	Next    uint64   `json:"next,omitempty"` // value of after for the next page; a page may be empty and have one
}

// WholeLetter is GET /v1/dead/{seq}.
type WholeLetter struct {
	Letter
	Headers map[string][]string `json:"headers,omitempty"`
	Text    *string             `json:"payload,omitempty"`     // if it is UTF-8 without NUL
	Base64  []byte              `json:"payload_b64,omitempty"` // else
}

// SetPayload puts the payload where it belongs.
func (w *WholeLetter) SetPayload(b []byte) {
	if w.Text, w.Base64 = nil, b; utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 {
		text := string(b)
		w.Text, w.Base64 = &text, nil
	}
}

// Payload is the message's own bytes.
func (w *WholeLetter) Payload() []byte {
	if w.Text != nil {
		return []byte(*w.Text)
	}
	return w.Base64
}

// DeadChoice is the body of POST /v1/dead/retry and /v1/dead/purge: Seqs, or
// All with what narrows it.
type DeadChoice struct {
	Seqs     []uint64 `json:"seqs,omitempty"` // at most MaxSeqs
	All      bool     `json:"all,omitempty"`
	Filter   string   `json:"filter,omitempty"` // on the original subject
	Consumer string   `json:"consumer,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	After    uint64   `json:"after,omitempty"` // with All: go on behind this letter
	UpTo     uint64   `json:"up_to,omitempty"` // with All: the last letter; 0: the last at the first call
}

// MaxSeqs is how many letters one call may name.
const MaxSeqs = 1000

// DeadDone is the answer to both. With All a call ends after a while: Next and
// UpTo go into the next one, until Next is 0.
type DeadDone struct {
	Retried int       `json:"retried"`
	Purged  int       `json:"purged"`
	Gone    int       `json:"gone"`    // were not there any more
	Refused int       `json:"refused"` // stay where they are
	Why     []Refused `json:"why,omitempty"`
	Next    uint64    `json:"next,omitempty"`
	UpTo    uint64    `json:"up_to,omitempty"`
}

// Refused says why a letter stays; of many, the first are named.
type Refused struct {
	Seq uint64 `json:"seq"`
	Why string `json:"why"`
}

// DeadQuery chooses a page of letters. The zero value is the first page of all.
type DeadQuery struct {
	Filter, Consumer, Reason string
	After                    uint64 // exclusive
	Limit                    int    // 0: the hub's default
}

// Dead asks for one page of letters.
func (c *Client) Dead(ctx context.Context, q DeadQuery) (Letters, error) {
	v := url.Values{}
	for key, value := range map[string]string{"filter": q.Filter, "consumer": q.Consumer, "reason": q.Reason} {
		if value != "" {
			v.Set(key, value)
		}
	}
	if q.After > 0 {
		v.Set("after", strconv.FormatUint(q.After, 10))
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	var out Letters
	return out, c.get(ctx, "/v1/dead", v, &out)
}

// DeadLetter asks for one letter, whole.
func (c *Client) DeadLetter(ctx context.Context, seq uint64) (WholeLetter, error) {
	var out WholeLetter
	return out, c.get(ctx, "/v1/dead/"+strconv.FormatUint(seq, 10), nil, &out)
}

// RetryDead offers letters to their consumers again.
func (c *Client) RetryDead(ctx context.Context, choice DeadChoice) (DeadDone, error) {
	return c.dead(ctx, "/v1/dead/retry", choice)
}

// PurgeDead removes letters for good.
func (c *Client) PurgeDead(ctx context.Context, choice DeadChoice) (DeadDone, error) {
	return c.dead(ctx, "/v1/dead/purge", choice)
}

func (c *Client) dead(ctx context.Context, path string, choice DeadChoice) (out DeadDone, err error) {
	data, err := json.Marshal(choice)
	if err != nil {
		return out, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(data))
	if err != nil {
		return out, err
	}
	req.Header.Set("Content-Type", "application/json")
	patient := c.http.Transport.(*http.Transport).Clone()
	patient.ResponseHeaderTimeout = 0 // many letters take a while
	defer patient.CloseIdleConnections()
	body, err := c.do(&http.Client{Transport: patient}, req)
	if err != nil {
		return out, err
	}
	return out, c.read(path, body, &out)
}
