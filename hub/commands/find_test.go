package commands

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// A command is found among many, by its id alone, and nothing is left of the search.
func TestFindAmongMany(t *testing.T) {
	w := newWorld(t)
	c := w.instance()
	const n = 50
	for i := range n {
		w.send(c, "dev1", fmt.Sprint("c", i))
	}
	w.send(c, "dev2", "other")
	for _, i := range []int{0, readWhole - 1, readWhole, n - 1} {
		cmd, err := c.find(t.Context(), "dev1", fmt.Sprint("c", i))
		if err != nil || cmd.ID != fmt.Sprint("c", i) || cmd.Device != "dev1" {
			t.Errorf("c%d: %+v, %v", i, cmd, err)
		}
	}
	for _, id := range []string{"none", "other"} {
		if _, err := c.find(t.Context(), "dev1", id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", id, err)
		}
	}
	names := w.s.JetStream().(jetstream.StreamManager)
	st, err := names.Stream(t.Context(), store.Commands)
	if err != nil {
		t.Fatal(err)
	}
	for name := range st.ConsumerNames(t.Context()).Name() {
		t.Errorf("consumer %s is left", name)
	}
}

// BenchmarkUnknownReports is what a device can have a hub do with one request: 64
// reports about commands that nobody knows, with 100 of 256 KiB waiting for it.
func BenchmarkUnknownReports(b *testing.B) {
	w := newWorld(b)
	c := w.instance()
	for i := range maxPending {
		if _, err := c.Send(b.Context(), NewCommand{ID: fmt.Sprint("c", i), Device: "dev1", Subject: "valve.set", Payload: make([]byte, 256<<10)}); err != nil {
			b.Fatal(err)
		}
	}
	d := w.device("dev1")
	for b.Loop() {
		for i := range 64 {
			d.report(fmt.Sprint("unknown", i), "acked")
		}
		d.ask(c)
	}
}

func TestOneIDIsOneCommand(t *testing.T) {
	w := newWorld(t)
	c := w.instance()
	first := w.send(c, "d", "same")
	if again := w.send(w.instance(), "d", "same"); again.Sent != first.Sent {
		t.Errorf("again: %+v", again)
	}
	if _, err := c.Send(t.Context(), NewCommand{ID: "same", Device: "other", Subject: "x"}); !errors.Is(err, ErrTaken) {
		t.Errorf("of another device: %v", err)
	}
	for _, n := range []NewCommand{{Subject: "valve.other", Payload: []byte("on same")}, {Subject: "valve.set", Payload: []byte("differs")}} {
		n.ID, n.Device = "same", "d"
		if _, err := c.Send(t.Context(), n); !errors.Is(err, ErrOther) {
			t.Errorf("%+v: %v", n, err)
		}
	}
	// Only the message is there, as after a crash, and the server has forgotten the id.
	cmd := command{record: record{ID: "lone", Device: "d", Subject: "valve.set"}, payload: []byte("on lone"), ackWait: time.Second, maxDeliver: 3}
	m := cmd.message(time.Hour)
	m.Header.Del(nats.MsgIdHdr)
	if _, err := w.s.PublishBatch(t.Context(), []store.Msg{m}); err != nil {
		t.Fatal(err)
	}
	w.send(c, "d", "lone")
	if n := w.left(store.Commands, "fp.cmd.d"); n != 2 {
		t.Errorf("%d messages, want 2", n)
	}
	d := w.device("d")
	d.ask(c)
	d.report("same", wire.CommandAcked)
	d.until(c)
	if again := w.send(c, "d", "same"); again.State != wire.CommandAcked {
		t.Errorf("after it was done: %+v", again)
	}
	if n := w.left(store.Commands, "fp.cmd.d"); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
}
