package client

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/agent/frame"
)

var background = context.Background()

// script runs a false agent: it greets, then does what serve says, then closes.
func script(t *testing.T, serve func(c net.Conn)) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fp")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "a.sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		ln.Close()
		<-done
		os.RemoveAll(dir)
	})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.SetDeadline(time.Now().Add(time.Minute))
			io.ReadFull(c, make([]byte, len(frame.Preface)))
			serve(c)
			c.Close()
		}
	}()
	return path
}

var hello = frame.AppendHello(nil, frame.Hello{Version: "1", Device: "d", MaxPayload: 1000, MaxFrame: 2000})

// take reads n publishes.
func take(c net.Conn, n int) {
	var buf []byte
	for n > 0 {
		_, _, rest, need, _ := frame.Next(buf, 1<<20)
		if need == 0 {
			buf = rest
			n--
			continue
		}
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		buf = append(buf, b...)
	}
}

func dial(t *testing.T, path string) *Client {
	t.Helper()
	c, err := Dial(background, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func code(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func TestAnswersInAnyOrder(t *testing.T) {
	c := dial(t, script(t, func(c net.Conn) {
		c.Write(hello)
		take(c, 100)
		out := frame.AppendReceipt(nil, frame.Receipt{First: 51, Count: 50, Lane: 0, Epoch: [8]byte{1}, Seq: 900})
		out = frame.AppendError(out, frame.Error{First: 10, Count: 1, Code: "bad_subject", Detail: "no"})
		out = frame.AppendReceipt(out, frame.Receipt{First: 11, Count: 40, Lane: 1, Epoch: [8]byte{1}, Seq: 1})
		out = frame.AppendReceipt(out, frame.Receipt{First: 1, Count: 9, Lane: 2, Memory: true})
		for _, b := range out { // torn as much as can be
			c.Write([]byte{b})
		}
		io.Copy(io.Discard, c)
	}))
	var waits [101]*Pending
	for i := 1; i <= 100; i++ {
		waits[i] = c.PublishAsync(Message{Subject: "a"})
	}
	ctx, cancel := context.WithTimeout(background, 20*time.Second)
	defer cancel()
	if err := c.Flush(ctx); err != nil {
		t.Error(err)
	}
	for i := 1; i <= 100; i++ {
		r, err := waits[i].Wait(background)
		var want Receipt
		switch {
		case i == 10:
			if code(err) != "bad_subject" {
				t.Errorf("10: %v", err)
			}
			continue
		case i < 10:
			want = Receipt{Lane: Bulk}
		case i <= 50:
			want = Receipt{Epoch: "0100000000000000", Lane: Normal, Seq: uint64(i - 10)}
		default:
			want = Receipt{Epoch: "0100000000000000", Lane: Urgent, Seq: uint64(900 + i - 51)}
		}
		if err != nil || r != want {
			t.Errorf("%d: %+v %v, want %+v", i, r, err, want)
		}
	}
}

// The agent says up to where it has taken in publishes: those after are refused,
// not unknown.
func TestAgentStops(t *testing.T) {
	c := dial(t, script(t, func(c net.Conn) {
		c.Write(hello)
		take(c, 3)
		out := frame.AppendReceipt(nil, frame.Receipt{First: 1, Count: 2, Seq: 1})
		c.Write(frame.AppendError(out, frame.Error{First: 3, Code: "stopping", Retry: 5, Detail: "later"}))
	}))
	a, b, x := c.PublishAsync(Message{Subject: "a"}), c.PublishAsync(Message{Subject: "b"}), c.PublishAsync(Message{Subject: "c"})
	for _, p := range []*Pending{a, b} {
		if _, err := p.Wait(background); err != nil {
			t.Error(err)
		}
	}
	_, err := x.Wait(background)
	if e := new(Error); !errors.As(err, &e) || e.Code != "stopping" || e.Retry != 5*time.Second {
		t.Errorf("%v", err)
	}
	if _, err := c.Publish(background, Message{Subject: "d"}); code(err) != "stopping" {
		t.Errorf("afterwards: %v", err)
	}
	if err := c.Flush(background); code(err) != "stopping" {
		t.Errorf("flush: %v", err)
	}
	<-c.Closed()
	if code(c.Err()) != "stopping" {
		t.Errorf("%v", c.Err())
	}
}

func TestBrokenAgents(t *testing.T) {
	for name, x := range map[string]struct {
		answer []byte
		code   string
	}{
		"closes":             {nil, CodeUnknown},
		"half a frame":       {frame.AppendReceipt(nil, frame.Receipt{First: 1, Count: 1})[:8], CodeUnknown},
		"no frame":           {[]byte{0, 0, 0, 0, 0}, CodeUnknown},
		"unknown type":       {[]byte{1, 0, 0, 0, 99}, CodeUnknown},
		"no receipt":         {[]byte{1, 0, 0, 0, 17}, CodeUnknown},
		"lane 9":             {frame.AppendReceipt(nil, frame.Receipt{First: 1, Count: 1, Lane: 9}), CodeUnknown},
		"receipt never sent": {frame.AppendReceipt(nil, frame.Receipt{First: 1, Count: 1 << 60}), CodeUnknown},
		"error never sent":   {frame.AppendError(nil, frame.Error{First: 7, Count: 1}), CodeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, script(t, func(c net.Conn) {
				c.Write(hello)
				take(c, 1)
				c.Write(x.answer)
			}))
			if _, err := c.Publish(background, Message{Subject: "a"}); code(err) != x.code {
				t.Errorf("%v", err)
			}
			if _, err := c.Publish(background, Message{Subject: "a"}); code(err) != CodeClosed {
				t.Errorf("afterwards: %v", err)
			}
			<-c.Closed()
		})
	}
}

func TestDialRefused(t *testing.T) {
	if _, err := Dial(background, filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "is the agent running") {
		t.Errorf("no socket: %v", err)
	}
	path := script(t, func(c net.Conn) { io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") })
	if _, err := Dial(background, path); code(err) != CodeProtocol {
		t.Errorf("not an agent: %v", err)
	}
	path = script(t, func(c net.Conn) { c.Write(frame.AppendReceipt(nil, frame.Receipt{First: 1, Count: 1})) })
	if _, err := Dial(background, path); code(err) != CodeProtocol {
		t.Errorf("no hello: %v", err)
	}
	ctx, cancel := context.WithCancel(background)
	path = script(t, func(c net.Conn) { cancel(); io.Copy(io.Discard, c) })
	if _, err := Dial(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("silent: %v", err)
	}
}

// PublishAsync is held back when nothing is answered, and let go when the
// connection ends.
func TestPublishIsHeldBack(t *testing.T) {
	end := make(chan struct{})
	c := dial(t, script(t, func(c net.Conn) {
		c.Write(hello)
		go io.Copy(io.Discard, c)
		<-end
	}))
	blocked := make(chan int)
	go func() {
		n := 0
		for c.Err() == nil {
			c.PublishAsync(Message{Subject: "a"})
			n++
		}
		blocked <- n
	}()
	deadline := time.Now().Add(20 * time.Second)
	for {
		c.mu.Lock()
		open := c.window.open
		c.mu.Unlock()
		if open == maxPending {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d without an answer", open)
		}
		time.Sleep(time.Millisecond)
	}
	close(end)
	if n := <-blocked; n > maxPending+1 {
		t.Errorf("%d messages were taken; %d may be without an answer", n, maxPending)
	}
}

func TestClosedWhilePublishing(t *testing.T) {
	for range 20 {
		c := dial(t, script(t, func(c net.Conn) {
			c.Write(hello)
			io.Copy(io.Discard, c)
		}))
		waits := make(chan *Pending, 1000)
		go func() {
			defer close(waits)
			for range cap(waits) {
				waits <- c.PublishAsync(Message{Subject: "a"})
			}
		}()
		go c.Close()
		for p := range waits {
			if _, err := p.Wait(background); code(err) != CodeUnknown && code(err) != CodeClosed {
				t.Fatalf("%v", err)
			}
		}
		c.Close()
	}
}
