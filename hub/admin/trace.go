package admin

import (
	"context"
	"net/url"
	"strconv"
	"time"
)

// States of a traced message.
const (
	TraceNotReceived = "not_received" // the ledger does not have it
	TraceGap         = "gap"          // its content will never come: the device has removed it
	TraceWaiting     = "waiting"      // received, and not unpacked yet
	TracePacked      = "packed"       // received; its route is not unpacked: it is in BLOCKS only
	TraceUnrouted    = "unrouted"     // received; no route takes it: it is in BLOCKS only
	TraceDamaged     = "damaged"      // received in a block that cannot be decoded
	TraceStored      = "stored"       // in a route's stream
	TraceDead        = "dead"         // a consumer gave it up, and its letter is in DEAD
	TraceRemoved     = "removed"      // received, and in no stream any more
	TraceUnknown     = "unknown"      // what is durable does not tell; the steps say why
)

// Trace is GET /v1/devices/{device}/trace: where one message is. It says only
// what follows from what is durable.
type Trace struct {
	Device  string `json:"device"`
	Epoch   string `json:"epoch,omitempty"` // empty: no message with that id was found
	Lane    string `json:"lane,omitempty"`
	Seq     uint64 `json:"seq,omitempty"`
	ID      string `json:"id,omitempty"`      // that was asked for, or that the message has
	Subject string `json:"subject,omitempty"` // the publisher's, if it is known
	State   string `json:"state"`
	// Steps are in the order of the message's journey; never null.
	Steps []TraceStep `json:"steps"`
	// Searched is what was looked through where only looking through helps.
	Searched []Searched `json:"searched,omitempty"`
}

// TraceStep is one thing that is known.
type TraceStep struct {
	Hop      string    `json:"hop"` // device, ledger, route, stream, consumer, dead or retry
	State    string    `json:"state"`
	Time     time.Time `json:"time,omitzero"`
	Stream   string    `json:"stream,omitempty"`
	Seq      uint64    `json:"seq,omitempty"`   // in Stream
	Block    uint64    `json:"block,omitempty"` // sequence of BLOCKS
	Lag      uint64    `json:"lag_blocks,omitempty"`
	Consumer string    `json:"consumer,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Text     string    `json:"text"` // for people
}

// Searched is the part of a stream that was looked through, the newest first.
type Searched struct {
	Stream   string `json:"stream"`
	Filter   string `json:"filter"`
	First    uint64 `json:"first_seq"` // after Last: nothing
	Last     uint64 `json:"last_seq"`
	Messages int    `json:"messages"` // that the filter took
	Complete bool   `json:"complete"` // all of the stream, or it was found
}

// Trace asks where the message with that number is.
func (c *Client) Trace(ctx context.Context, device, epoch, lane string, seq uint64) (Trace, error) {
	return c.trace(ctx, device, url.Values{"epoch": {epoch}, "lane": {lane}, "seq": {strconv.FormatUint(seq, 10)}})
}

// TraceID asks where the newest message with that publisher's id is.
func (c *Client) TraceID(ctx context.Context, device, id string) (Trace, error) {
	return c.trace(ctx, device, url.Values{"id": {id}})
}

func (c *Client) trace(ctx context.Context, device string, v url.Values) (Trace, error) {
	var out Trace
	return out, c.get(ctx, "/v1/devices/"+url.PathEscape(device)+"/trace", v, &out)
}
