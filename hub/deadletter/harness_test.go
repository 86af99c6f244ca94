package deadletter

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/store"
)

// world is a real JetStream with the streams of a hub.
type world struct {
	t      *testing.T
	cfg    store.Config
	s      *store.Store
	js     jetstream.JetStream // with the hub's rights; consumers are the tests'
	layout store.Layout
	log    *slog.Logger
	fault  atomic.Pointer[func(string) error] // of the store
}

func newWorld(t *testing.T) *world { return worldAt(t, nil) }

// worldAt is on an external server if urls are given.
func worldAt(t *testing.T, urls []string) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "fieldpost-dead") // not TempDir: the server may still write after a shutdown
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &world{t: t, log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	w.cfg = store.Config{Dir: dir, Listen: "127.0.0.1:-1", MaxStore: 4 << 30, URLs: urls, Fault: func(point string) error {
		if fn := w.fault.Load(); fn != nil {
			return (*fn)(point)
		}
		return nil
	}}
	w.layout = store.Layout{BlocksMaxBytes: 64 << 20, DeadMaxAge: time.Hour, DeadMaxBytes: 64 << 20, Routes: []store.RouteStream{
		{Name: "EDGE", Subjects: []string{"edge.>"}, MaxBytes: 256 << 20},
		{Name: "ALARMS", Subjects: []string{"alarms.>"}, MaxBytes: 64 << 20},
	}}
	w.open()
	t.Cleanup(func() { w.s.Close() })
	return w
}

func (w *world) open() {
	w.t.Helper()
	var err error
	if w.s, err = store.Open(w.ctx(), w.cfg); err != nil {
		w.t.Fatal(err)
	}
	if err := w.s.EnsureStreams(w.ctx(), w.layout); err != nil {
		w.t.Fatal(err)
	}
	w.openJS()
}

// window is the shortest in which the server recognises ids. Nothing may depend
// on that, so tests let it pass.
const window = 100 * time.Millisecond

func (w *world) openJS() {
	w.t.Helper()
	nc, err := w.s.Connect("test")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	if w.js, err = jetstream.New(nc); err != nil {
		w.t.Fatal(err)
	}
	for _, name := range []string{store.Dead, store.Retry} {
		w.change(name, func(c *jetstream.StreamConfig) { c.Duplicates = window })
	}
}

// change sets a stream as an operator would.
func (w *world) change(stream string, fn func(*jetstream.StreamConfig)) {
	w.t.Helper()
	st, err := w.js.Stream(w.ctx(), stream)
	if err != nil {
		w.t.Fatal(err)
	}
	cfg := st.CachedInfo().Config
	fn(&cfg)
	if _, err := w.js.UpdateStream(w.ctx(), cfg); err != nil {
		w.t.Fatal(err)
	}
}

// forget waits until the server does not recognise any id that it has seen.
func (w *world) forget() {
	w.t.Helper()
	began := time.Now()
	w.eventually("the window has passed", func() bool { return time.Since(began) > 2*window })
}

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	w.t.Cleanup(cancel)
	return ctx
}

// external is a server that an operator runs.
func external(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), SyncAlways: true, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not start")
	}
	return s.ClientURL()
}

// instance is one hub's part.
type instance struct {
	*Letters
	stop func()
}

// run starts an instance.
func (w *world) run(change ...func(*Config)) *instance {
	w.t.Helper()
	cfg := Config{Store: w.s, Streams: []string{"EDGE", "ALARMS"}, AckWait: time.Second, Log: w.log}
	for _, fn := range change {
		fn(&cfg)
	}
	l, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	in := &instance{Letters: l}
	stopped := false
	in.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				w.t.Errorf("Run: %v", err)
			}
		case <-time.After(time.Minute):
			w.t.Fatal("Run does not end")
		}
	}
	w.t.Cleanup(in.stop)
	return in
}

func (w *world) publish(subject, data string, h nats.Header) uint64 {
	w.t.Helper()
	ack, err := w.js.PublishMsg(w.ctx(), &nats.Msg{Subject: subject, Data: []byte(data), Header: h})
	if err != nil {
		w.t.Fatal(err)
	}
	return ack.Sequence
}

// consumer of a stream as any back end makes one.
func (w *world) consumer(stream, name string, change ...func(*jetstream.ConsumerConfig)) jetstream.Consumer {
	w.t.Helper()
	cfg := jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute, MaxDeliver: 2}
	for _, fn := range change {
		fn(&cfg)
	}
	c, err := w.js.CreateOrUpdateConsumer(w.ctx(), stream, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// each hands n deliveries of a consumer to fn.
func (w *world) each(c jetstream.Consumer, n int, fn func(jetstream.Msg) error) {
	w.t.Helper()
	for range n {
		m, err := c.Next(jetstream.FetchMaxWait(30 * time.Second))
		if err != nil {
			w.t.Fatal(err)
		}
		if err := fn(m); err != nil {
			w.t.Fatal(err)
		}
	}
}

func term(m jetstream.Msg) error { return m.Term() }
func nak(m jetstream.Msg) error  { return m.Nak() }
func ack(m jetstream.Msg) error  { return m.Ack() }

// advised waits until the server's word on n messages is kept.
func (w *world) advised(n uint64) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%d advisories", n), func() bool { return w.info(store.Advisories).Last >= n })
}

// asked lets consumers ask for more until the server's word on n messages is
// kept: a pull consumer's used-up message is noticed when it asks again.
func (w *world) asked(n uint64, cs ...jetstream.Consumer) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%d advisories", n), func() bool {
		for _, c := range cs {
			batch, err := c.Fetch(1, jetstream.FetchMaxWait(20*time.Millisecond))
			if err != nil {
				w.t.Fatal(err)
			}
			for m := range batch.Messages() {
				w.t.Fatalf("%s is delivered again", m.Subject())
			}
		}
		return w.info(store.Advisories).Last >= n
	})
}

func (w *world) info(stream string) store.Info {
	w.t.Helper()
	info, err := w.s.Info(w.ctx(), stream)
	if err != nil {
		w.t.Fatal(err)
	}
	return info
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("never: %s", what)
		}
	}
}

// all messages of a stream.
func (w *world) all(stream string) (out []store.Stored) {
	w.t.Helper()
	for seq := uint64(1); ; {
		m, err := w.s.Next(w.ctx(), stream, ">", seq)
		if err == store.ErrNotFound {
			return out
		}
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, m)
		seq = m.Seq + 1
	}
}

// settled waits until no advisory is left, and returns what DEAD holds.
func (w *world) settled() []store.Stored {
	w.t.Helper()
	w.eventually("every advisory is settled", func() bool { return w.info(store.Advisories).Messages == 0 })
	return w.all(store.Dead)
}

// short is a letter in one line.
func short(m store.Stored) string {
	out := []string{m.Subject, m.Header.Get(HdrReason), m.Header.Get(HdrConsumer), m.Header.Get(HdrDeliveries), m.Header.Get(HdrStream) + "/" + m.Header.Get(HdrStreamSeq)}
	if s := m.Header.Get(HdrDetail); s != "" {
		out = append(out, "("+s+")")
	}
	if s := m.Header.Get(HdrRetry); s != "" {
		out = append(out, "retry="+s)
	}
	return strings.Join(append(out, string(m.Data)), " ")
}

func (w *world) wantDead(want ...string) {
	w.t.Helper()
	var got []string
	for _, m := range w.settled() {
		got = append(got, short(m))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.t.Errorf("DEAD holds\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}
