package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/agent/client"
	"github.com/fieldpost/fieldpost/agent/frame"
)

// Slow programs that hold the memory of all large frames: the others are told so.
func TestSlowLargeFramesDoNotSilenceOthers(t *testing.T) {
	w := start(t, func(c *Config) {
		c.Socket.MaxPayload, c.Socket.MaxInflight = 256<<10, 1<<20
		c.HeaderTimeout, c.BodyTimeout = 100*time.Millisecond, 30*time.Second
	})
	text := frame.AppendPublish(nil, &frame.Publish{Subject: "a", Fields: frame.Fields{Payload: make([]byte, 250<<10)}})
	for range 8 {
		c, err := net.Dial("unix", w.path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, frame.Preface+string(text[:1000])); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(background, 20*time.Second)
	defer cancel()
	w.eventually("a large publish is refused with quota", func() bool {
		c := w.dial()
		_, err := c.Publish(ctx, client.Message{Subject: "big", Payload: make([]byte, 250<<10)})
		return errors.Is(err, &client.Error{Code: codeQuota})
	})
	if _, err := w.dial().Publish(ctx, client.Message{Subject: "small"}); err != nil {
		t.Error(err)
	}
}
