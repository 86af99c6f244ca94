package commands

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// crowd settles commands of other devices, with results that fill the bucket
// several times.
func (w *world) crowd(c *Commands, tidy func()) {
	w.t.Helper()
	var d *device
	for i := range 300 {
		if i%20 == 0 { // one may not ask so often
			d = w.device(fmt.Sprint("busy", i))
		}
		id := fmt.Sprint("busy", i)
		w.send(c, d.name, id)
		d.report(id, wire.CommandAcked)
		d.reports[len(d.reports)-1].Result = bytes.Repeat([]byte{byte(i)}, 30_000)
		d.until(c)
		tidy()
	}
}

// What is known of a command that is not settled stays, whatever others report.
func TestFullBucketKeepsWhatIsAlive(t *testing.T) {
	w := newWorld(t)
	if err := w.s.EnsureStreams(t.Context(), store.Layout{BlocksMaxBytes: 1 << 20, DeadMaxBytes: 64 << 20, CommandsMaxBytes: 3 << 20, CommandsMaxPending: maxPending}); err != nil {
		t.Fatal(err)
	}
	c := w.instance()
	away := w.device("away")
	for _, id := range []string{"had", "taken-back"} {
		w.send(c, away.name, id)
		away.until(c) // it is delivered, and stays so
	}
	w.send(c, "away", "late") // the device is gone
	if _, err := c.Cancel(t.Context(), "taken-back"); err != nil {
		t.Fatal(err)
	}
	before, err := w.s.Info(t.Context(), store.CommandsIndex)
	if err != nil {
		t.Fatal(err)
	}
	w.crowd(c, func() {
		select {
		case <-c.wake: // as Run does
			sweep(t, c)
		default:
			if c.wakeAfter == 0 {
				sweep(t, c)
			}
		}
	})
	after, err := w.s.Info(t.Context(), store.CommandsIndex)
	if err != nil {
		t.Fatal(err)
	}
	if after.First <= before.Last {
		t.Fatal("the bucket was never full: the run proves nothing")
	}
	for id, want := range map[string]wire.CommandState{"had": wire.CommandDelivered, "taken-back": wire.CommandDelivered, "late": wire.CommandPending} {
		r, err := c.record(t.Context(), "away", id)
		if err != nil || r.State != want || want == wire.CommandDelivered && !r.away() {
			t.Errorf("%s: %+v, %v", id, r, err)
		}
	}
	if _, err := c.Cancel(t.Context(), "late"); err != nil {
		t.Errorf("cancel: %v", err)
	}
	if ids, err := c.toCancel(t.Context(), "away"); err != nil || len(ids) != 1 || ids[0] != "taken-back" {
		t.Errorf("to cancel: %v, %v", ids, err)
	}
}

// A record lives as long as its command, however old it is.
func TestOldRecordsAreRenewed(t *testing.T) {
	w := newWorld(t)
	c := w.instance()
	w.send(c, "d", "old")
	r, err := c.record(t.Context(), "d", "old")
	if err != nil {
		t.Fatal(err)
	}
	sweep(t, c)
	if now, err := c.record(t.Context(), "d", "old"); err != nil || now.rev != r.rev {
		t.Fatalf("renewed while it is young: %+v, %v", now, err)
	}
	if _, err := c.Send(t.Context(), NewCommand{ID: "long", Device: "d", Subject: "x", TTL: MaxTTL}); err != nil {
		t.Fatal(err)
	}
	w.later(cleanAge + time.Hour)
	sweep(t, c)
	now, err := c.record(t.Context(), "d", "long")
	if err != nil || now.rev <= r.rev+1 || now.State != wire.CommandPending {
		t.Errorf("%+v, %v", now, err)
	}
}

// A command whose message somebody removed, and whose device is gone for good, ends.
func TestStrayEnds(t *testing.T) {
	w := newWorld(t)
	c := w.instance()
	w.send(c, "d", "stray")
	w.device("d").until(c) // it is delivered
	info, err := w.s.Info(t.Context(), store.Commands)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.s.PurgeTo(t.Context(), store.Commands, info.Last); err != nil {
		t.Fatal(err)
	}
	sweep(t, c)
	if s := w.state("d", "stray"); s != wire.CommandDelivered {
		t.Fatalf("it is %s at once", s)
	}
	w.later(max(cleanAge, forgotten+time.Hour) + time.Hour)
	sweep(t, c)
	if s, n := w.state("d", "stray"), w.letters("d"); s != wire.CommandExpired || n != 1 {
		t.Errorf("it is %s, with %d letters", s, n)
	}
}
