package wire

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Limits of the session's JSON messages. What a device sends is bounded here
// before anything else looks at it.
const (
	MaxOpen      = 64 << 10 // bytes of an open request or a heartbeat
	MaxOpenReply = 1 << 20  // bytes of the reply
	MaxFlows     = 256      // flows in an open request and its reply
	MaxLabels    = 32
	maxLabelKey  = 64
	maxStreams   = 8
	maxName      = 64  // bytes of what may become a token of a subject
	maxText      = 255 // bytes of a label's value and other texts for people
)

// ParseOpen reads and checks an open request. Keys it does not know are
// ignored, so that newer agents may add some.
func ParseOpen(data []byte) (*Open, error) {
	var o Open
	if err := unmarshal(data, MaxOpen, &o); err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("open: %w: %w", ErrCorrupt, err)
	}
	return &o, nil
}

func (o *Open) check() error {
	switch {
	case o.Protocol < 1:
		return fmt.Errorf("protocol %d; it begins at 1", o.Protocol)
	case !printable(o.Version, maxText):
		return errText("version")
	case !token(o.Process, maxName):
		return errToken("process")
	case o.HubID != "" && !token(o.HubID, maxName):
		return errToken("hub_id")
	case o.Token != "" && !dotted(o.Token, MaxToken):
		return errDotted("token", MaxToken)
	case o.Order != "fifo" && o.Order != "fresh-first":
		return errors.New("order is neither fifo nor fresh-first")
	case o.Class != "" && !token(o.Class, maxName):
		return errToken("class")
	case len(o.Flows) > MaxFlows:
		return fmt.Errorf("%d flows; the limit is %d", len(o.Flows), MaxFlows)
	case len(o.Streams) > maxStreams:
		return fmt.Errorf("%d forms of the stream; the limit is %d", len(o.Streams), maxStreams)
	}
	for _, name := range o.Streams {
		if !token(name, maxName) {
			return errToken("streams")
		}
	}
	if err := checkFlows(o.Flows); err != nil {
		return err
	}
	return checkLabels(o.Labels)
}

func checkFlows(flows []FlowHeld) error {
	seen := make(map[Flow]bool, len(flows))
	for _, f := range flows {
		switch {
		case f.Epoch.IsZero() || !f.Lane.Valid():
			return fmt.Errorf("flow %s does not exist", f.Flow)
		case f.Base < 1 || f.First < f.Base || f.Last < f.First || f.Last > MaxSeq:
			return fmt.Errorf("flow %s: base %d, first %d, last %d are not in order", f.Flow, f.Base, f.First, f.Last)
		case seen[f.Flow]:
			return fmt.Errorf("flow %s comes twice", f.Flow)
		}
		seen[f.Flow] = true
	}
	return nil
}

// ParseOpenReply reads and checks the hub's answer to an open request.
func ParseOpenReply(data []byte) (*OpenReply, error) {
	var r OpenReply
	if err := unmarshal(data, MaxOpenReply, &r); err != nil {
		return nil, fmt.Errorf("open reply: %w", err)
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("open reply: %w: %w", ErrCorrupt, err)
	}
	return &r, nil
}

func (r *OpenReply) check() error {
	switch {
	case (r.Error == nil) == (r.Session == nil):
		return errors.New("not exactly one of error and session")
	case !printable(r.Notice, maxText):
		return errText("notice")
	case r.HubID != "" && !token(r.HubID, maxName):
		return errToken("hub_id")
	case r.Error != nil:
		if r.Error.Code == "" || !printable(r.Error.Code, maxCode) || !printable(r.Error.Detail, maxDetail) {
			return errText("error")
		}
		return nil
	case r.Protocol < 1 || r.Protocol > Protocol:
		return fmt.Errorf("protocol %d was not offered", r.Protocol)
	case r.Session.IsZero():
		return errors.New("the session is zero")
	case !token(r.Instance, maxName):
		return errToken("instance")
	case r.HubID == "":
		return errToken("hub_id")
	case r.Token != "" && !dotted(r.Token, MaxToken):
		return errDotted("token", MaxToken)
	case r.Stream != "" && !token(r.Stream, maxName):
		return errToken("stream")
	case r.MaxPayload < 1 || r.Window < 1:
		return fmt.Errorf("max_payload %d and window %d must both be more than 0", r.MaxPayload, r.Window)
	case len(r.Received) > MaxFlows:
		return fmt.Errorf("%d flows; the limit is %d", len(r.Received), MaxFlows)
	}
	slots := [MaxSlots]bool{}
	for i := range r.Partial {
		p := &r.Partial[i]
		if err := p.check(); err != nil {
			return err
		}
		if slots[p.Slot] {
			return fmt.Errorf("slot %d comes twice", p.Slot)
		}
		slots[p.Slot] = true
	}
	seen := make(map[Flow]bool, len(r.Received))
	for _, f := range r.Received {
		switch {
		case f.Epoch.IsZero() || !f.Lane.Valid():
			return fmt.Errorf("flow %s does not exist", f.Flow)
		case seen[f.Flow]:
			return fmt.Errorf("flow %s comes twice", f.Flow)
		}
		seen[f.Flow] = true
	}
	return nil
}

// ParseHeartbeat reads and checks a heartbeat.
func ParseHeartbeat(data []byte) (*Heartbeat, error) {
	var h Heartbeat
	if err := unmarshal(data, MaxOpen, &h); err != nil {
		return nil, fmt.Errorf("heartbeat: %w", err)
	}
	if err := h.check(); err != nil {
		return nil, fmt.Errorf("heartbeat: %w: %w", ErrCorrupt, err)
	}
	return &h, nil
}

func (h *Heartbeat) check() error {
	switch {
	case !printable(h.Version, maxText):
		return errText("version")
	case !token(h.Process, maxName):
		return errToken("process")
	case h.Class != "" && !token(h.Class, maxName):
		return errToken("class")
	case h.Every < 1 || h.Every > maxEvery:
		return fmt.Errorf("every %d s is not in 1 to %d", h.Every, maxEvery)
	case h.Started < 0 || h.Started > MaxTime:
		return fmt.Errorf("started at %d ms is not a time", h.Started)
	case h.Now < 0 || h.Now > MaxTime:
		return fmt.Errorf("now, %d ms, is not a time", h.Now)
	case h.Error != nil && (!printable(h.Error.Text, maxText) || h.Error.Time < 0 || h.Error.Time > MaxTime):
		return errText("error")
	case h.DiskUsed < 0 || h.DiskMax < 0:
		return errors.New("disk sizes below 0")
	case len(h.Dropped) > maxDropped:
		return fmt.Errorf("%d reasons; the limit is %d", len(h.Dropped), maxDropped)
	}
	if h.Epoch != "" {
		if _, err := ParseEpoch(h.Epoch); err != nil {
			return err
		}
	}
	for lane, b := range h.Backlog {
		if _, err := ParseLane(lane); err != nil {
			return err
		}
		if b.Bytes < 0 || b.Oldest < 0 || b.Oldest > MaxTime {
			return fmt.Errorf("backlog of lane %s: %d bytes, oldest %d", lane, b.Bytes, b.Oldest)
		}
	}
	for reason := range h.Dropped {
		if !token(reason, maxName) { // a newer agent may know more reasons
			return errToken("a reason in dropped")
		}
	}
	return checkLabels(h.Labels)
}

const (
	maxEvery   = 86_400 // seconds
	maxDropped = 32     // reasons
)

func checkLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return fmt.Errorf("%d labels; the limit is %d", len(labels), MaxLabels)
	}
	for k, v := range labels {
		if !dotted(k, maxLabelKey) {
			return errDotted(fmt.Sprintf("the label %.80q", k), maxLabelKey)
		}
		if !printable(v, maxText) {
			return errText("the value of label " + k)
		}
	}
	return nil
}

// unmarshal bounds the input before it is looked at.
func unmarshal(data []byte, limit int, v any) error {
	if len(data) > limit {
		return fmt.Errorf("%w: %d bytes; the limit is %d", ErrLimit, len(data), limit)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

func errText(what string) error {
	return fmt.Errorf("%s is longer than its limit or not printable", what)
}

func errToken(what string) error {
	return fmt.Errorf("%s is not 1 to %d of A-Z a-z 0-9 _ -", what, maxName)
}

func errDotted(what string, limit int) error {
	return fmt.Errorf("%s is not 1 to %d of A-Z a-z 0-9 . _ -", what, limit)
}
