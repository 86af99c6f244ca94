package testenv

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

// echo is a server that answers each line with itself.
func echo(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	return ln.Addr().String()
}

func line(t *testing.T, c net.Conn, s string, wait time.Duration) error {
	t.Helper()
	if _, err := io.WriteString(c, s+"\n"); err != nil {
		return err
	}
	c.SetReadDeadline(time.Now().Add(wait))
	got, err := bufio.NewReader(c).ReadString('\n')
	if err == nil && got != s+"\n" {
		t.Fatalf("sent %q, got %q", s, got)
	}
	return err
}

func TestProxy(t *testing.T) {
	p, err := NewProxy(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	c := dial()
	if err := line(t, c, "hello", 5*time.Second); err != nil {
		t.Fatal(err)
	}
	Eventually(t, 5*time.Second, "the counts", func() error { // they follow the bytes
		if up, down := p.Bytes(Up), p.Bytes(Down); up != 6 || down != 6 {
			return fmt.Errorf("counted %d up, %d down, want 6 and 6", up, down)
		}
		return nil
	})

	p.Hole(Down, true)
	if err := line(t, c, "swallowed", 50*time.Millisecond); !isTimeout(err) {
		t.Fatalf("want a time-out in a black hole, got %v", err)
	}
	p.Hole(Down, false)
	c.SetReadDeadline(time.Now().Add(5 * time.Second))
	if s, err := bufio.NewReader(c).ReadString('\n'); err != nil || s != "swallowed\n" {
		t.Fatalf("after the hole: %q, %v", s, err)
	}

	p.Cut(true)
	if err := line(t, c, "x", 5*time.Second); err == nil {
		t.Fatal("a cut link answered")
	}
	if off, err := net.Dial("tcp", p.Addr()); err == nil { // the reset may come before it returns, or after
		defer off.Close()
		if err := line(t, off, "x", 5*time.Second); err == nil {
			t.Fatal("a link that is off answered")
		}
	}
	p.Cut(false)
	if err := line(t, dial(), "again", 5*time.Second); err != nil {
		t.Fatal(err)
	}
}

// TestProxyHoldsBack: what a slow link does not carry stays with the sender, who
// comes to wait; nothing is lost or reordered, with losses neither.
func TestProxyHoldsBack(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	p, err := NewProxy(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.ShapeLike(Shape{Delay: 20 * time.Millisecond, Rate: [2]int64{8 << 10, 8 << 10}})
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.(*net.TCPConn).SetWriteBuffer(8 << 10)
	hub, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	sent := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{1}).Read(sent)
	c.SetWriteDeadline(time.Now().Add(time.Second))
	n, err := c.Write(sent)
	if !isTimeout(err) || n > 512<<10 {
		t.Fatalf("the link took %d bytes: %v", n, err)
	}
	p.ShapeLike(Shape{Delay: time.Millisecond, Rate: [2]int64{4 << 20, 4 << 20}, Loss: 0.05, Seed: 1})
	c.SetWriteDeadline(time.Time{})
	go c.Write(sent[n:])
	hub.SetReadDeadline(time.Now().Add(20 * time.Second))
	got := make([]byte, len(sent))
	if n, err := io.ReadFull(hub, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("what arrived differs, %d of %d bytes: %v", n, len(sent), err)
	}
	Eventually(t, 5*time.Second, "the count", func() error {
		if up := p.Bytes(Up); up != int64(len(sent)) {
			return fmt.Errorf("counted %d of %d", up, len(sent))
		}
		return nil
	})
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
