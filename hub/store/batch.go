package store

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// Headers and error codes of nats-server 2.15.
const (
	hdrBatchID     = "Nats-Batch-Id"
	hdrBatchSeq    = "Nats-Batch-Sequence"
	hdrBatchCommit = "Nats-Batch-Commit"

	codeAccountExceeded = 10002
	codeNoPeers         = 10005
	codeInsufficient    = 10023
	codeStorageExceeded = 10047
	codeTooLarge        = 10054
	codeNotMatch        = 10060
	codeWrongLast       = 10071
	codeStoreFailed     = 10077
	codeWrongLastConst  = 10164
	codeBatchDisabled   = 10174
	codeBatchHeader     = 10177
	codeBatchTooLarge   = 10199
)

// batchSeqs holds the header values "1" to "1000", so that a batch allocates none.
var batchSeqs = func() (out [MaxBatch][]string) {
	for i := range out {
		out[i] = []string{strconv.Itoa(i + 1)}
	}
	return out
}()

var commitMark = []string{"1"}

// Pending is a batch whose messages are written and whose answer is awaited.
type Pending struct {
	s     *Store
	token string
	ch    chan answer
}

// PublishBatch stores 1..MaxBatch messages atomically in the stream that takes
// their subjects and returns the stream sequence of the last; the others
// precede it without a gap. ErrGuard and ErrFull mean that nothing is stored,
// ErrUnknownOutcome that only reading can tell; with any other error, too,
// nothing is stored and trying again does not help.
func (s *Store) PublishBatch(ctx context.Context, msgs []Msg) (last uint64, err error) {
	p, err := s.StartBatch(msgs)
	if err != nil {
		return 0, err
	}
	return p.Wait(ctx)
}

// StartBatch writes the batch to the connection and returns; Wait tells the
// outcome. Batches that one goroutine starts are judged in that order. The
// messages may be reused when it returns.
func (s *Store) StartBatch(msgs []Msg) (*Pending, error) {
	if len(msgs) == 0 || len(msgs) > MaxBatch {
		return nil, fmt.Errorf("store: a batch of %d messages; 1 to %d are possible", len(msgs), MaxBatch)
	}
	if err := s.cfg.Fault("batch:send"); err != nil {
		return nil, unknown(err)
	}
	token, ch, err := s.answers.expect()
	if err != nil {
		return nil, err
	}
	if err := s.writeBatch(msgs, token); err != nil {
		s.answers.forget(token)
		switch { // in both cases the commit was never written
		case errors.Is(err, nats.ErrMaxPayload):
			return nil, fmt.Errorf("%w: %w", ErrTooLarge, err)
		case errors.Is(err, nats.ErrBadSubject):
			return nil, fmt.Errorf("store: publish: %w", err)
		}
		return nil, unknown(err)
	}
	return &Pending{s: s, token: token, ch: ch}, nil
}

func (s *Store) writeBatch(msgs []Msg, token string) error {
	reply := s.answers.prefix + token
	if len(msgs) == 1 {
		if err := s.cfg.Fault("batch:commit"); err != nil {
			return err
		}
		m := &msgs[0]
		return s.write.PublishMsg(&nats.Msg{Subject: m.Subject, Reply: reply, Header: m.Header, Data: m.Data})
	}
	id := []string{token}
	var out nats.Msg
	var scratch nats.Header // for messages without headers
	for i := range msgs {
		m := &msgs[i]
		h := m.Header
		if h == nil {
			if scratch == nil {
				scratch = make(nats.Header, 3)
			}
			h = scratch
		}
		h[hdrBatchID], h[hdrBatchSeq] = id, batchSeqs[i]
		out = nats.Msg{Subject: m.Subject, Header: h, Data: m.Data}
		var err error
		if i == len(msgs)-1 {
			h[hdrBatchCommit], out.Reply = commitMark, reply
			err = s.cfg.Fault("batch:commit")
		}
		if err == nil {
			err = s.write.PublishMsg(&out)
		}
		delete(h, hdrBatchID)
		delete(h, hdrBatchSeq)
		delete(h, hdrBatchCommit)
		if err != nil {
			return err
		}
	}
	return nil
}

// Wait returns the stream sequence of the batch's last message. It is called once.
func (p *Pending) Wait(ctx context.Context) (last uint64, err error) {
	timer := time.NewTimer(p.s.cfg.Timeout)
	defer timer.Stop()
	select {
	case a := <-p.ch:
		return p.s.judge(a)
	case <-timer.C:
		err = fmt.Errorf("no answer after %s", p.s.cfg.Timeout)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	p.s.answers.forget(p.token)
	return 0, unknown(err)
}

func (s *Store) judge(a answer) (uint64, error) {
	if a.err != nil {
		return 0, unknown(a.err)
	}
	if err := s.cfg.Fault("batch:answer"); err != nil {
		return 0, unknown(err)
	}
	last, stream, err := parseAck(a.msg)
	if err == nil {
		s.news.tell(stream)
	}
	return last, err
}

type pubAck struct {
	Stream string `json:"stream"`
	Seq    uint64 `json:"seq"`
	Error  *struct {
		Code        int    `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
}

func parseAck(m *nats.Msg) (seq uint64, stream string, err error) {
	if len(m.Data) == 0 {
		if m.Header.Get("Status") == "503" {
			return 0, "", unknown(errors.New("no stream takes this subject now"))
		}
		return 0, "", unknown(errors.New("empty answer"))
	}
	var a pubAck
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return 0, "", unknown(fmt.Errorf("answer %.80q: %w", m.Data, err))
	}
	if a.Error == nil {
		if a.Seq == 0 {
			return 0, "", unknown(fmt.Errorf("answer %.80q without a sequence", m.Data))
		}
		return a.Seq, a.Stream, nil
	}
	detail := fmt.Errorf("%s (%d)", a.Error.Description, a.Error.Code)
	switch a.Error.Code {
	case codeWrongLast, codeWrongLastConst:
		return 0, "", fmt.Errorf("%w: %w", ErrGuard, detail)
	case codeAccountExceeded, codeInsufficient, codeStorageExceeded:
		return 0, "", fmt.Errorf("%w: %w", ErrFull, detail)
	case codeStoreFailed: // any reason: only the limits are checked before something is written
		switch {
		case strings.HasPrefix(a.Error.Description, "maximum messages per subject"):
			return 0, "", fmt.Errorf("%w: %w", ErrSubjectFull, detail)
		case strings.HasPrefix(a.Error.Description, "maximum "):
			return 0, "", fmt.Errorf("%w: stream %s: %w", ErrFull, a.Stream, detail)
		}
	case codeTooLarge:
		return 0, "", fmt.Errorf("%w: %w", ErrTooLarge, detail)
	case codeNotMatch, codeBatchDisabled, codeBatchHeader, codeBatchTooLarge:
		return 0, "", fmt.Errorf("store: publish: %w", detail)
	}
	return 0, "", unknown(detail)
}

func unknown(err error) error { return fmt.Errorf("%w: %w", ErrUnknownOutcome, err) }

// answer is what came for a batch, or why nothing can come any more.
type answer struct {
	msg *nats.Msg
	err error
}

// answers hands the answers of one connection to those who wait.
type answers struct {
	prefix string // of reply subjects
	run    string // makes batch ids unique across instances and restarts
	n      atomic.Uint64

	mu      sync.Mutex
	closed  bool                   // guarded by mu
	waiting map[string]chan answer // guarded by mu
}

func newAnswers(nc *nats.Conn) (*answers, error) {
	a := &answers{
		prefix:  nc.NewRespInbox() + ".",
		run:     base64.RawURLEncoding.EncodeToString(random(6)),
		waiting: map[string]chan answer{},
	}
	if _, err := nc.Subscribe(a.prefix+"*", a.deliver); err != nil {
		return nil, fmt.Errorf("store: subscribe to answers: %w", err)
	}
	if err := nc.Flush(); err != nil {
		return nil, fmt.Errorf("store: subscribe to answers: %w", err)
	}
	return a, nil
}

// expect returns a token that is new in the life of the streams: it ends the
// reply subject and is the batch's id.
func (a *answers) expect() (string, chan answer, error) {
	token := a.run + strconv.FormatUint(a.n.Add(1), 36)
	ch := make(chan answer, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return "", nil, unknown(errClosed)
	}
	a.waiting[token] = ch
	return token, ch, nil
}

var errClosed = errors.New("store: closed")

func (a *answers) deliver(m *nats.Msg) {
	token := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	a.mu.Lock()
	ch := a.waiting[token]
	delete(a.waiting, token)
	a.mu.Unlock()
	if ch != nil {
		ch <- answer{msg: m} // capacity 1, and the token is gone
	}
}

func (a *answers) forget(token string) {
	a.mu.Lock()
	delete(a.waiting, token)
	a.mu.Unlock()
}

func (a *answers) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for token, ch := range a.waiting {
		ch <- answer{err: errClosed}
		delete(a.waiting, token)
	}
}
