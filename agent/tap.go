package agent

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/fieldpost/fieldpost/spool"
	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	maxTaps  = 16
	tapBytes = 512 << 10 // what a reader may be behind, before it is dropped
)

// taps are those who watch local publishes.
type taps struct {
	any atomic.Bool // there is one: looked at for each batch

	mu   sync.Mutex
	list []*tapReader // guarded by mu
}

// tapReader is one of them.
type tapReader struct {
	filter string
	wake   chan struct{} // has a value when there is something new

	mu      sync.Mutex
	queue   []tapped // guarded by mu
	bytes   int      // of queue; guarded by mu
	dropped bool     // it was too slow; guarded by mu
}

type tapped struct {
	m    wire.Message
	lane wire.Lane
	flow wire.Flow
	seq  uint64 // 0: not known, in a batch that held duplicates
}

func (t *taps) add(r *tapReader) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.list) == maxTaps {
		return false
	}
	t.list = append(t.list, r)
	t.any.Store(true)
	return true
}

func (t *taps) remove(r *tapReader) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list = slices.DeleteFunc(t.list, func(o *tapReader) bool { return o == r })
	t.any.Store(len(t.list) > 0)
}

// show copies accepted messages to those who watch. It never waits for them.
func (t *taps) show(lane wire.Lane, msgs []wire.Message, rc spool.Receipt) {
	if !t.any.Load() || rc.Accepted == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.list {
		r.offer(lane, msgs, rc)
	}
}

func (r *tapReader) offer(lane wire.Lane, msgs []wire.Message, rc spool.Receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range msgs {
		if r.dropped {
			return
		}
		if !wire.MatchFilter(r.filter, msgs[i].Subject) {
			continue
		}
		if r.bytes += msgs[i].Size() + 128; r.bytes > tapBytes {
			r.dropped = true
			continue
		}
		m := msgs[i]
		m.Payload = slices.Clone(m.Payload)
		x := tapped{m: m, lane: lane, flow: rc.Flow}
		if rc.Duplicates == 0 {
			x.seq = rc.First + uint64(i)
		}
		r.queue = append(r.queue, x)
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// next takes what has come; ok is false when the reader was dropped.
func (r *tapReader) next() (batch []tapped, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	batch, r.queue, r.bytes = r.queue, nil, 0
	return batch, !r.dropped
}

// tapJSON is one line of the tap.
type tapJSON struct {
	Subject string            `json:"subject"`
	Payload *string           `json:"payload,omitempty"`
	B64     []byte            `json:"payload_b64,omitempty"`
	Lane    wire.Lane         `json:"lane"`
	Epoch   wire.Epoch        `json:"epoch"`
	Seq     uint64            `json:"seq,omitempty"`
	ID      string            `json:"id,omitempty"`
	Time    time.Time         `json:"time"`
	Headers map[string]string `json:"headers,omitempty"`
}

func (x *tapped) json() tapJSON {
	out := tapJSON{
		Subject: x.m.Subject, Lane: x.lane, Epoch: x.flow.Epoch, Seq: x.seq, ID: x.m.ID,
		Time: time.UnixMilli(x.m.Time).UTC(),
	}
	if utf8.Valid(x.m.Payload) {
		text := string(x.m.Payload)
		out.Payload = &text
	} else {
		out.B64 = x.m.Payload
	}
	for _, h := range x.m.Headers {
		if out.Headers == nil {
			out.Headers = map[string]string{}
		}
		out.Headers[h.Key] = h.Value
	}
	return out
}

// tap is GET /v1/tap.
func (a *Agent) tap(w http.ResponseWriter, r *http.Request) *problem {
	filter := r.URL.Query().Get("filter")
	if filter == "" {
		filter = ">"
	}
	if err := wire.CheckFilter(filter); err != nil {
		return newProblem(codeBadSubject, "%v", err)
	}
	if a.gate.now() == stopping {
		return newProblem(codeStopping, "retry when the agent runs again")
	}
	t := &tapReader{filter: filter, wake: make(chan struct{}, 1)}
	if !a.taps.add(t) {
		return newProblem(codeQuota, "%d programs tap already", maxTaps)
	}
	defer a.taps.remove(t)
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	if rc.Flush() != nil {
		return nil
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for {
		select {
		case <-t.wake:
		case <-a.stopping:
			return nil
		case <-r.Context().Done():
			return nil
		}
		batch, ok := t.next()
		rc.SetWriteDeadline(time.Now().Add(a.cfg.BodyTimeout))
		for i := range batch {
			if enc.Encode(batch[i].json()) != nil {
				return nil
			}
		}
		if !ok {
			p := newProblem(codeQuota, "this reader was more than %d bytes behind and was dropped; read faster or filter more", tapBytes)
			enc.Encode(map[string]any{"problem": p.json(), "code": p.code})
		}
		if rc.Flush() != nil || !ok {
			return nil
		}
	}
}
