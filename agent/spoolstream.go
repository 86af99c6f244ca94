package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/fieldpost/fieldpost/spool"
)

// stream begins a long answer. ctx ends with the reader or the agent; out gives
// a reader time for every write, and end comes last.
func (a *Agent) stream(w http.ResponseWriter, r *http.Request, kind string) (ctx context.Context, out *bufio.Writer, end func()) {
	ctx, cancel := context.WithCancelCause(r.Context())
	rc := http.NewResponseController(w)
	stop := make(chan struct{})
	go func() {
		select {
		case <-a.stopping:
			cancel(spool.ErrClosed)
			rc.SetWriteDeadline(time.Now().Add(time.Second)) // nobody waits for a reader that takes nothing
		case <-stop:
		}
	}()
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(http.StatusOK)
	out = bufio.NewWriterSize(&patientWriter{w, rc, a.cfg.BodyTimeout, a.stopping}, 64<<10)
	return ctx, out, func() {
		out.Flush() // a reader that is gone needs no answer
		close(stop)
		cancel(nil)
		rc.SetWriteDeadline(time.Now().Add(a.cfg.BodyTimeout)) // for what net/http adds
	}
}

// patientWriter gives each write a time limit of its own.
type patientWriter struct {
	io.Writer
	rc       *http.ResponseController
	limit    time.Duration
	stopping <-chan struct{}
}

func (w *patientWriter) Write(b []byte) (int, error) {
	select {
	case <-w.stopping: // the last second has begun
	default:
		w.rc.SetWriteDeadline(time.Now().Add(w.limit))
	}
	return w.Writer.Write(b)
}

// lineEvery is how long lines wait for company before a reader gets them.
const lineEvery = 200 * time.Millisecond

// streamLines answers with NDJSON. An error that comes later is the last line.
func (a *Agent) streamLines(w http.ResponseWriter, r *http.Request, produce func(ctx context.Context, line func(any) error) error) *problem {
	ctx, out, end := a.stream(w, r, "application/x-ndjson")
	defer end()
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	shown := time.Now()
	err := produce(ctx, func(v any) error {
		if err := enc.Encode(v); err != nil || time.Since(shown) < lineEvery {
			return err
		}
		shown = time.Now()
		return errors.Join(out.Flush(), http.NewResponseController(w).Flush())
	})
	if err != nil {
		p := a.streamProblem(err)
		enc.Encode(map[string]any{"problem": p.json(), "code": p.code}) // a reader that is gone needs no answer
	}
	return nil
}

// streamProblem is what an error in the middle of an answer means.
func (a *Agent) streamProblem(err error) *problem {
	ce := (*spool.CorruptError)(nil)
	switch {
	case a.gate.now() == stopping:
		return newProblem(codeStopping, "the agent is stopping; try again when it runs, or without it")
	case errors.As(err, &ce):
		return newProblem(codeDiskFault, "%v; start the agent: it puts what is damaged aside, reports it, and goes on with the rest", err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return newProblem(codeTimeout, "the reader took nothing for %v", a.cfg.BodyTimeout)
	}
	return problemOf(err)
}
