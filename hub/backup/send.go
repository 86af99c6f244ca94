package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats.go"
)

const (
	// sendChunk is small, and compressed by itself: the server gives up when it
	// needs 5 s for one, and it may have to sync every message in it.
	sendChunk  = 32 << 10
	sendWindow = 8 // chunks without an answer
)

// send restores one stream from its file.
func send(ctx context.Context, nc *nats.Conn, p planned, path string, progress io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var answer struct {
		Subject string `json:"deliver_subject"`
	}
	err = api(ctx, nc, "$JS.API.STREAM.RESTORE."+p.Name, map[string]any{"config": p.config, "state": p.State}, &answer)
	if err != nil {
		return err
	}
	if answer.Subject == "" {
		return errors.New("JetStream does not say where it takes the stream")
	}
	c := &chunks{ctx: ctx, nc: nc, to: answer.Subject, inbox: nc.NewInbox()}
	if c.answers, err = nc.SubscribeSync(c.inbox); err != nil {
		return err
	}
	defer c.answers.Unsubscribe() //nolint:errcheck // the connection ends soon
	enc := s2.NewWriter(c, s2.WriterBlockSize(sendChunk), s2.WriterConcurrency(1))
	_, err = io.Copy(enc, s2.NewReader(io.TeeReader(&stoppable{ctx, f}, progress)))
	if e := enc.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return c.end()
}

// chunks sends what is written to it, a few unanswered at a time.
type chunks struct {
	ctx     context.Context
	nc      *nats.Conn
	to      string
	inbox   string
	answers *nats.Subscription
	flight  int
	heard   bool // an answer has come
}

// interestWait is how long the servers of a cluster may take to tell each other
// where the chunks go: the one that we are connected to may not know it yet when
// it is the first to be asked. The server that restores waits for 5 s.
const interestWait = 4 * time.Second

func (c *chunks) Write(b []byte) (int, error) {
	for n := 0; n < len(b); {
		part := b[n:min(n+sendChunk, len(b))]
		for c.flight >= sendWindow {
			if err := c.answer(); err != nil {
				return n, err
			}
		}
		err := c.nc.PublishRequest(c.to, c.inbox, part)
		if err == nil {
			c.flight++
			err = c.first(part)
		}
		if err != nil {
			return n, err
		}
		n += len(part)
	}
	return len(b), nil
}

// first sends the first chunk until somebody takes it.
func (c *chunks) first(part []byte) error {
	for until := time.Now().Add(interestWait); !c.heard; {
		err := c.answer()
		if !errors.Is(err, errNobody) || time.Now().After(until) {
			return err
		}
		select {
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		case <-time.After(20 * time.Millisecond):
		}
		if err := c.nc.PublishRequest(c.to, c.inbox, part); err != nil {
			return err
		}
		c.flight++
	}
	return nil
}

var errNobody = errors.New("no server takes the stream any more")

// answer takes one: empty, or why the restore is over.
func (c *chunks) answer() error {
	m, err := next(c.ctx, c.answers)
	if errors.Is(err, nats.ErrNoResponders) || err == nil && m.Header.Get("Status") == "503" {
		c.flight--
		return errNobody
	}
	if err != nil {
		return err
	}
	c.flight--
	c.heard = true
	switch data := bytes.TrimSpace(m.Data); {
	case len(data) > 0:
		if err := answered(data, nil); err != nil {
			return err
		}
		return fmt.Errorf("the server has ended early: %.80q", data)
	}
	return nil
}

// end says that this was all, and waits until it is stored.
func (c *chunks) end() error {
	for c.flight > 0 {
		if err := c.answer(); err != nil {
			return err
		}
	}
	if err := c.nc.PublishRequest(c.to, c.inbox, nil); err != nil {
		return err
	}
	m, err := next(c.ctx, c.answers)
	if err != nil {
		return err
	}
	var r struct {
		Config json.RawMessage `json:"config"`
	}
	if err := answered(m.Data, &r); err != nil {
		return err
	}
	if r.Config == nil {
		return fmt.Errorf("answer %.80q is not that of a restored stream", m.Data)
	}
	return nil
}
