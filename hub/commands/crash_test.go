package commands

import (
	"errors"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestKilledAtEachStep lets an instance die at every labelled step, the first
// time it comes by or a later one, and another go on. Every command ends in the
// state that its device reported, or that the hub had to choose, once.
func TestKilledAtEachStep(t *testing.T) {
	points := append(Points(), "dead:claim", "dead:claimed", "dead:publish", "dead:published")
	for _, point := range points {
		for nth := 1; nth <= 3; nth++ {
			t.Run(point, func(t *testing.T) { killed(t, point, nth) })
		}
	}
}

func killed(t *testing.T, point string, nth int) {
	w := newWorld(t)
	ctx := t.Context()
	w.kill(point, nth)
	// again calls until it works; what dies is another instance's to go on with.
	again := func(what string, call func(*Commands) error) {
		t.Helper()
		for range 3 {
			err := call(w.instance())
			if err == nil {
				return
			}
			if !errors.Is(err, errDied) && !errors.Is(err, errUnanswered) {
				t.Fatalf("%s: %v", what, err)
			}
			w.kill("", 0)
		}
		t.Fatalf("%s: never", what)
	}
	all := []string{"acked", "failed", "device-expired", "cancelled", "told", "hub-expired"}
	for _, id := range all {
		again("send", func(c *Commands) error {
			_, err := c.Send(ctx, NewCommand{ID: id, Device: "d", Subject: "x", Payload: []byte(id), TTL: time.Hour})
			return err
		})
	}
	again("send", func(c *Commands) error {
		_, err := c.Send(ctx, NewCommand{ID: "asleep", Device: "asleep", Subject: "x", TTL: time.Hour})
		return err
	})
	again("cancel", func(c *Commands) error { _, err := c.Cancel(ctx, "cancelled"); return err })
	d := w.device("d")
	ask := func(c *Commands) error {
		if r := d.ask(c); r.Error != nil {
			return errUnanswered
		}
		return nil
	}
	again("ask", ask)
	again("ask", ask)
	again("cancel", func(c *Commands) error { _, err := c.Cancel(ctx, "told"); return err })
	d.report("acked", wire.CommandAcked)
	d.report("failed", wire.CommandFailed)
	d.report("device-expired", wire.CommandExpired)
	d.report("told", wire.CommandCancelled)
	again("report", ask)
	again("report", ask)
	w.later(forgotten + 2*time.Hour)
	again("sweep", func(c *Commands) error { return c.sweep(ctx) })
	w.kill("", 0)
	sweep(t, w.instance()) // whatever died last
	d.until(w.instance())
	want := map[string]wire.CommandState{"acked": wire.CommandAcked, "failed": wire.CommandFailed, "device-expired": wire.CommandExpired,
		"cancelled": wire.CommandCancelled, "told": wire.CommandCancelled, "hub-expired": wire.CommandExpired}
	for id, s := range want {
		if got := w.state("d", id); got != s {
			t.Errorf("%s is %q, want %q", id, got, s)
		}
	}
	if got := w.state("asleep", "asleep"); got != wire.CommandExpired {
		t.Errorf("asleep is %q", got)
	}
	if n, l := w.left(store.Commands, "fp.cmd.*"), w.letters("d"); n != 0 || l != 3 || w.letters("asleep") != 1 {
		t.Errorf("%d messages are left; %d letters, want 3, and %d, want 1", n, l, w.letters("asleep"))
	}
	seen := map[string]bool{}
	for _, id := range d.got {
		if seen[id] && point != "commands:offered" {
			t.Errorf("%s came again", id)
		}
		seen[id] = true
	}
	if seen["cancelled"] || len(seen) != 5 {
		t.Errorf("came: %v", d.got)
	}
}

var errUnanswered = errors.New("the request was not answered")
