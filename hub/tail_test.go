package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

func TestTail(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	js, err := r.inside().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	publish := func(subject string, data []byte) {
		t.Helper()
		if _, err := js.Publish(subject, data); err != nil {
			t.Fatal(err)
		}
	}
	publish("edge.d1.temp", []byte("before"))
	c := r.admin()

	read := func(q admin.TailQuery, n int, during func()) (out []admin.Message) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		started := len(r.tails)
		done := make(chan error, 1)
		go func() {
			done <- c.Tail(ctx, q, func(m admin.Message) error {
				if out = append(out, m); len(out) == n {
					cancel()
				}
				return nil
			})
		}()
		eventually(t, "the tail runs", func() bool { return len(r.tails) > started || len(done) > 0 })
		if during != nil {
			during()
		}
		if err := <-done; err != nil {
			t.Fatalf("tail %+v: %v", q, err)
		}
		return out
	}
	got := read(admin.TailQuery{From: "first"}, 3, func() {
		publish("edge.d1.temp", []byte("text ü"))
		publish("edge.d2.raw", []byte{0xff, 0x00})
	})
	if len(got) != 3 || string(got[0].Payload) != "before" || string(got[1].Payload) != "text ü" || string(got[2].Payload) != "\xff\x00" ||
		got[2].Subject != "edge.d2.raw" || got[2].Seq != 3 || got[2].Time.IsZero() {
		t.Errorf("everything: %+v", got)
	}
	for q, want := range map[admin.TailQuery][]uint64{
		{From: "first", Filter: "edge.*.temp"}:            {1, 2},
		{From: "2"}:                                       {2, 3},
		{From: "2020-01-02T03:04:05Z", Filter: ">"}:       {1, 2, 3},
		{From: "first", Stream: "EDGE", Filter: "*.d2.>"}: {3},
	} {
		var seqs []uint64
		for _, m := range read(q, len(want), nil) {
			seqs = append(seqs, m.Seq)
		}
		if !slices.Equal(seqs, want) {
			t.Errorf("%+v: messages %v, want %v", q, seqs, want)
		}
	}
	eventually(t, "all places are free again", func() bool { return len(r.tails) == 0 })
}

func TestTailOfNewMessages(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	d := newDevice(r, "d1")
	d.open()
	d.send(wire.FrameBlock, d.block("old"))
	d.acked()
	edge(t, r.connect(), "d1", 1)

	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+r.Addrs().HTTP+"/v1/tail?filter=edge.d1.>", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req) // its headers come when the tail is in place
	if err != nil {
		t.Fatal(err)
	}
	d.send(wire.FrameBlock, d.block("new"))
	d.acked()
	line := make([]byte, 4096)
	n, err := resp.Body.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"subject":"edge.d1.sensors.temp"`, `"payload":"new"`, `"Unit":["C"]`, `"Fieldpost-Seq":["2"]`, `"seq":2`} {
		if !strings.Contains(string(line[:n]), want) {
			t.Errorf("line lacks %s: %s", want, line[:n])
		}
	}
	cancel()
	resp.Body.Close()
	eventually(t, "the tail ends with its client", func() bool { return len(r.tails) == 0 })
}

func TestTailsEndWithTheHub(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	js, err := r.inside().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish("edge.d1.x", []byte("x")); err != nil {
		t.Fatal(err)
	}
	flowing := make(chan struct{})
	done := make(chan error, 1)
	c := r.admin()
	go func() {
		done <- c.Tail(context.Background(), admin.TailQuery{From: "first"}, func(admin.Message) error { close(flowing); return nil })
	}()
	<-flowing
	r.stop()
	if err := <-done; !errors.Is(err, io.EOF) {
		t.Errorf("tail of a hub that stopped: %v", err)
	}
}

// A client that follows and never reads must hold neither the hub nor memory.
func TestTailsAreBounded(t *testing.T) {
	const places = 5
	r := start(t, testConfig(t.TempDir()), func(h *Hub) { h.tails = make(chan struct{}, places) })
	js, err := r.inside().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		if _, err := js.Publish(fmt.Sprintf("edge.d%d.x", i), make([]byte, 512<<10)); err != nil {
			t.Fatal(err)
		}
	}
	follow := func(meanwhile func()) {
		t.Helper()
		for range places {
			conn, err := net.Dial("tcp", r.Addrs().HTTP)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "GET /v1/tail?from=first HTTP/1.1\r\nHost: hub\r\n\r\n")
		}
		eventually(t, "all places are taken", func() bool { return len(r.tails) == places })
		meanwhile()
	}
	free := func() {
		t.Helper()
		eventually(t, "all places are free again", func() bool { return len(r.tails) == 0 })
	}
	follow(func() {
		if code, body := r.get("/v1/tail"); code != 429 || !strings.Contains(body, `"quota"`) {
			t.Errorf("one more: %d %s", code, body)
		}
		if code, _ := r.get("/readyz"); code != 200 {
			t.Errorf("readyz: %d", code)
		}
	})
	free()
	before := runtime.NumGoroutine()
	for range 5 {
		follow(func() {})
		free()
	}
	// A tail that leaves something behind leaves at least its consumer's three goroutines.
	eventually(t, "no goroutine is left behind", func() bool { return runtime.NumGoroutine() < before+5*places })
}
