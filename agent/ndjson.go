package agent

import (
	"bytes"
	"net/http"
	"time"

	"github.com/fieldpost/fieldpost/spool"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// batchJSON answers the publish of many messages.
type batchJSON struct {
	Epoch      *wire.Epoch `json:"epoch,omitempty"`
	Lane       wire.Lane   `json:"lane"`
	Accepted   int         `json:"accepted"`
	Duplicates int         `json:"duplicates"`
	FirstSeq   uint64      `json:"first_seq,omitempty"`
	LastSeq    uint64      `json:"last_seq,omitempty"`
	Durable    string      `json:"durable,omitempty"`
	Line       int         `json:"line,omitempty"` // of a stream: everything to this line is stored
}

func newBatchJSON(rc spool.Receipt) batchJSON {
	return batchJSON{
		Epoch: &rc.Flow.Epoch, Lane: rc.Flow.Lane, Accepted: rc.Accepted, Duplicates: rc.Duplicates,
		FirstSeq: rc.First, LastSeq: rc.Last,
	}
}

// publishLines is POST /v1/publish.
func (a *Agent) publishLines(w http.ResponseWriter, r *http.Request) *problem {
	began := time.Now()
	for key := range r.Header {
		if len(key) > 10 && key[:10] == "Fieldpost-" {
			return newProblem(codeBadHeader, "%s belongs to the publish of one message; here each line says it for itself", key)
		}
	}
	ack, p := ackParam(r)
	if p != nil {
		return p
	}
	timeout, p := timeoutParam(r)
	if p != nil {
		return p
	}
	if p := a.refuseNow(); p != nil {
		return p
	}
	switch s := r.URL.Query().Get("stream"); {
	case s == "1" && ack != ackDisk:
		return newProblem(codeBadRequest, "a stream is answered when it is on disk; leave out ack")
	case s == "1":
		return a.publishStream(w, r)
	case s != "" && s != "0":
		return newProblem(codeBadRequest, "stream=%s is not 0 or 1", s)
	}
	bd, p := a.readBody(w, r, maxAtomicBody, "an atomic batch, which ?stream=1 does not have")
	if p != nil {
		return p
	}
	b := batch{a: a, parser: lineParser{a: a, rules: a.tuned.Load(), now: time.Now().UnixMilli()}}
	if p := b.parseAll(bd.b); p != nil {
		b.release()
		bd.release(a)
		return p
	}
	if ack == ackMemory {
		return b.answerMemory(w, bd)
	}
	if ack == ackHub {
		a.expectHub()
	}
	rc, p := a.append(b.lane, b.msgs)
	b.release()
	bd.release(a)
	if p != nil {
		return p
	}
	a.metrics.duration.Update(time.Since(began).Seconds())
	out, status := newBatchJSON(rc), http.StatusOK
	if ack == ackHub {
		if status, out.Durable, p = a.awaitHub(r, rc, timeout); p != nil {
			return p
		}
	}
	return writeJSON(w, status, out)
}

// batch collects the messages of an NDJSON body.
type batch struct {
	a      *Agent
	parser lineParser
	lane   wire.Lane
	msgs   []wire.Message
	held   int64 // of Agent.lines
}

// linesStep is how many messages are taken from the budget at a time.
const linesStep = 1024

// parseAll parses the lines of an atomic batch.
func (b *batch) parseAll(body []byte) *problem {
	for n := 1; len(body) > 0; n++ {
		var line []byte
		line, body, _ = bytes.Cut(body, []byte{'\n'})
		if isBlank(line) {
			continue
		}
		m, lane, p := b.parser.parse(line)
		switch {
		case p != nil:
		case len(b.msgs) == 0:
			b.lane = lane
		case lane != b.lane:
			p = newProblem(codeMixedLanes, "lane %s after %s; send a batch for each lane, or use ?stream=1", lane, b.lane)
		case len(b.msgs) == wire.MaxCount:
			p = newProblem(codeTooLarge, "an atomic batch holds at most %d messages; use ?stream=1", wire.MaxCount)
		}
		if p == nil {
			p = b.add(m)
		}
		if p != nil {
			return p.at(n)
		}
	}
	if len(b.msgs) == 0 {
		return newProblem(codeBadLine, "the body has no line").at(1)
	}
	return nil
}

func (b *batch) add(m wire.Message) *problem {
	if int64(len(b.msgs)) == b.held {
		if !b.a.lines.take(linesStep) {
			return newProblem(codeQuota, "more than %d messages of batches are in memory; retry, or publish less at once", b.a.lines.max)
		}
		b.held += linesStep
	}
	b.msgs = append(b.msgs, m)
	return nil
}

func (b *batch) release() {
	if b.held > 0 {
		b.a.lines.give(b.held)
	}
	b.held, b.msgs = 0, nil
}

func (b *batch) answerMemory(w http.ResponseWriter, bd *body) *problem {
	n, lane := len(b.msgs), b.lane
	if p := b.a.submitLightly(lane, b.msgs, func() { b.release(); bd.release(b.a) }); p != nil {
		return p
	}
	return writeJSON(w, http.StatusAccepted, batchJSON{Lane: lane, Accepted: n, Durable: "memory"})
}

func isBlank(line []byte) bool { return len(bytes.TrimSpace(line)) == 0 }
