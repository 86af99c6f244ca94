package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"
)

// streamChunk is the memory of a stream: what it holds is one commit.
const streamChunk = 128 << 10

// stream is a publish of any length, answered chunk by chunk.
type stream struct {
	a      *Agent
	w      http.ResponseWriter
	rc     *http.ResponseController
	buf    []byte // read and not yet parsed
	held   int64
	line   int // last one parsed
	stored int // last one stored
	begun  bool
}

// publishStream is POST /v1/publish?stream=1. Every line before a bad one is stored.
func (a *Agent) publishStream(w http.ResponseWriter, r *http.Request) *problem {
	s := &stream{a: a, w: w, rc: http.NewResponseController(w)}
	if err := s.rc.EnableFullDuplex(); err != nil {
		return newProblem(codeInternal, "%v", err)
	}
	defer s.release()
	for {
		n, err := s.read(r.Body)
		if n == 0 && err == nil {
			continue
		}
		p := s.publish(err == io.EOF)
		if p == nil && err != nil && err != io.EOF {
			var full *problem
			if errors.As(err, &full) {
				p = full.at(s.line + 1)
			} else {
				p = a.bodyProblem(err, len(s.buf)).at(s.line + 1)
			}
		}
		switch {
		case p != nil:
			return s.fail(p)
		case err == io.EOF && !s.begun:
			return newProblem(codeBadLine, "the body has no line").at(1)
		case err == io.EOF:
			return nil
		}
	}
}

// read reads what there is, at most until the buffer is full.
func (s *stream) read(from io.Reader) (int, error) {
	if int64(len(s.buf)) == s.held {
		if err := s.grow(); err != nil {
			return 0, err
		}
	}
	s.rc.SetReadDeadline(time.Now().Add(s.a.cfg.BodyTimeout))
	n, err := from.Read(s.buf[len(s.buf):s.held])
	s.buf = s.buf[:len(s.buf)+n]
	return n, err
}

// grow makes room for more of one line.
func (s *stream) grow() error {
	limit := s.a.cfg.Socket.MaxPayload*4/3 + 16<<10 // base64, and the rest of a line
	size := min(max(2*s.held, streamChunk), max(limit, streamChunk))
	if size == s.held {
		return newProblem(codeTooLarge, "the line is longer than %d bytes; socket.max_payload is %d, and base64 is shorter than escapes", s.held, s.a.cfg.Socket.MaxPayload)
	}
	if !s.a.bodies.take(size - s.held) {
		return newProblem(codeQuota, "bodies in memory reach socket.max_inflight, %d bytes; retry, or publish less at once", s.a.bodies.max)
	}
	s.buf = append(make([]byte, 0, size), s.buf...)
	s.held = size
	return nil
}

func (s *stream) release() {
	if s.held > 0 {
		s.a.bodies.give(s.held)
	}
	s.held, s.buf = 0, nil
}

// publish stores the complete lines that have been read; it returns the first fault.
func (s *stream) publish(last bool) *problem {
	rest := s.buf
	b := batch{a: s.a, parser: lineParser{a: s.a, now: time.Now().UnixMilli()}}
	defer b.release()
	var bad *problem
	for len(rest) > 0 && bad == nil {
		line, after, ended := bytes.Cut(rest, []byte{'\n'})
		if !ended && !last {
			break
		}
		rest = after
		s.line++
		if isBlank(line) {
			continue
		}
		m, lane, p := b.parser.parse(line)
		if p == nil && lane != b.lane { // another lane begins another chunk
			if p := s.commit(&b, s.line-1); p != nil {
				return p
			}
			b.lane = lane
		}
		if p == nil {
			p = b.add(m)
		}
		if p != nil {
			bad = p.at(s.line)
		}
	}
	upTo := s.line
	if bad != nil {
		upTo--
	}
	if p := s.commit(&b, upTo); p != nil {
		return p
	}
	s.buf = s.buf[:copy(s.buf, rest)]
	return bad
}

// commit stores a chunk and sends its receipt.
func (s *stream) commit(b *batch, upTo int) *problem {
	if len(b.msgs) == 0 {
		return nil
	}
	began := time.Now()
	rc, p := s.a.append(b.lane, b.msgs)
	b.release()
	if p != nil {
		return p.at(s.stored + 1)
	}
	s.a.metrics.duration.Update(time.Since(began).Seconds())
	s.stored = upTo
	out := newBatchJSON(rc)
	out.Line = upTo
	return s.send(out)
}

// send writes one line of the answer.
func (s *stream) send(v any) *problem {
	line, err := json.Marshal(v)
	if err != nil {
		return newProblem(codeInternal, "%v", err)
	}
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", "application/x-ndjson")
	}
	s.rc.SetWriteDeadline(time.Now().Add(s.a.cfg.BodyTimeout))
	if _, err = s.w.Write(append(line, '\n')); err == nil {
		err = s.rc.Flush()
	}
	if err != nil {
		return newProblem(codeTimeout, "the receipts are not read: %v", err)
	}
	return nil
}

// fail ends the answer with what went wrong.
func (s *stream) fail(p *problem) *problem {
	if !s.begun {
		return p
	}
	s.a.metrics.refused(p)
	s.send(struct {
		Problem problemJSON `json:"problem"`
		Code    string      `json:"code"`
		Line    int         `json:"line"`
	}{p.json(), p.code, p.line})
	s.rc.SetReadDeadline(time.Now().Add(min(s.a.cfg.BodyTimeout, unreadTimeout)))
	return nil
}
