package hub

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/trace"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// maxTraces bounds the answers that are looked for at the same time.
const maxTraces = 4

// tracer makes what looks for single messages.
func (p *parts) tracer() *trace.Tracer {
	var streams []trace.Stream
	for _, r := range p.hub.cfg.Routes {
		s := trace.Stream{Name: r.Stream, Prefix: r.Prefix}
		if !r.packed() && !slices.Contains(streams, s) {
			streams = append(streams, s)
		}
	}
	return trace.New(trace.Config{Store: p.store, JetStream: p.js, Unpack: p.unpack, Device: p.registry.Device, Streams: streams})
}

// trace is GET /v1/devices/{device}/trace.
func (h *Hub) trace(w http.ResponseWriter, r *http.Request) {
	p := h.running(w)
	if p == nil {
		return
	}
	device, id, flow, seq, err := traceQuery(r)
	if err != nil {
		problem(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	select {
	case h.traces <- struct{}{}:
		defer func() { <-h.traces }()
	default:
		problem(w, http.StatusTooManyRequests, "quota", fmt.Sprintf("%d messages are traced already; wait for one of them", cap(h.traces)))
		return
	}
	var out admin.Trace
	if id != "" {
		out, err = p.tracer().ID(r.Context(), device, id)
	} else {
		out, err = p.tracer().Message(r.Context(), device, flow, seq)
	}
	if err != nil {
		h.unreadable(w, err)
		return
	}
	writeJSON(w, out)
}

// traceQuery reads which message is meant.
func traceQuery(r *http.Request) (device, id string, f wire.Flow, seq uint64, err error) {
	q := r.URL.Query()
	device, id = r.PathValue("device"), q.Get("id")
	if err := wire.CheckDevice(device); err != nil {
		return device, id, f, 0, err
	}
	if q.Has("id") {
		if q.Has("epoch") || q.Has("lane") || q.Has("seq") {
			return device, id, f, 0, errors.New("either id, or epoch, lane and seq")
		}
		return device, id, f, 0, wire.CheckID(id)
	}
	f.Epoch, err = wire.ParseEpoch(q.Get("epoch"))
	if err == nil {
		f.Lane, err = wire.ParseLane(q.Get("lane"))
	}
	if err == nil {
		if seq, err = strconv.ParseUint(q.Get("seq"), 10, 64); err != nil || seq == 0 || seq > wire.MaxSeq {
			err = fmt.Errorf("seq %q is not a sequence, which are counted from 1", q.Get("seq"))
		}
	}
	if err != nil {
		err = fmt.Errorf("%w; a message is named by ?epoch=&lane=&seq= as in its publisher's receipt, or by ?id=", err)
	}
	return device, id, f, seq, err
}
