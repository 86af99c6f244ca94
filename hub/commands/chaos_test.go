package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestManyHands: two instances, senders that repeat themselves, cancels, sweeps, and
// devices whose requests and replies get lost, come twice and late, at both
// instances at once. Every command ends in one state, and says so once.
func TestManyHands(t *testing.T) {
	w := newWorld(t)
	instances := []*Commands{w.instance(), w.instance()}
	rnd := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	either := func() *Commands { return instances[rnd.IntN(2)] }
	const devices, each = 4, 12
	var work sync.WaitGroup
	id := func(d, i int) string { return fmt.Sprintf("c%d-%d", d, i) }
	name := func(d int) string { return fmt.Sprintf("d%d", d) }
	for d := range devices {
		a, b := either(), either()
		work.Go(func() {
			for i := range each {
				for _, c := range []*Commands{a, b} { // the second is a repetition
					if _, err := c.Send(t.Context(), NewCommand{ID: id(d, i), Device: name(d), Subject: "x", TTL: time.Hour}); err != nil {
						t.Error(err)
					}
				}
			}
		})
		dev, seed := w.device(name(d)), rnd.Uint64()
		work.Go(func() { restless(t, dev, instances, seed) })
		canceller := either()
		work.Go(func() {
			for i := 0; i < each; i += 3 {
				for {
					_, err := canceller.Cancel(t.Context(), id(d, i))
					if err == nil {
						break
					}
					if !errors.Is(err, ErrUnknown) { // not sent yet
						t.Error(err)
						return
					}
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	ctx, stop := context.WithCancel(t.Context())
	var sweeping sync.WaitGroup
	for _, c := range instances {
		sweeping.Go(func() {
			for ctx.Err() == nil {
				if err := c.sweep(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	stop()
	sweeping.Wait()
	w.later(forgotten + 2*time.Hour) // what no device has settled, the hub does
	sweep(t, w.instance())
	dead := 0
	sum := map[wire.CommandState]int{}
	for d := range devices {
		for i := range each {
			s := w.state(name(d), id(d, i))
			sum[s]++
			if !s.Settled() {
				t.Errorf("%s is %q", id(d, i), s)
			}
		}
		dead += w.letters(name(d))
	}
	if want := sum[wire.CommandExpired] + sum[wire.CommandFailed]; dead != want {
		t.Errorf("%d letters, want %d", dead, want)
	}
	if n := w.left(store.Commands, "fp.cmd.*"); n != 0 {
		t.Errorf("%d messages are left", n)
	}
	for s, n := range sum {
		if got := w.counts[s]; got != n {
			t.Errorf("%d are %s, counted were %d", n, s, got)
		}
	}
}

// restless asks again and again: sometimes at two instances at once, sometimes what
// it asked before, sometimes without hearing the answer.
func restless(t *testing.T, d *device, instances []*Commands, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 2))
	final := []wire.CommandState{wire.CommandAcked, wire.CommandFailed, wire.CommandExpired, wire.CommandCancelled}
	done := map[string]bool{}
	var old []byte
	for range 60 {
		data, err := json.Marshal(d.request())
		if err != nil {
			t.Error(err)
			return
		}
		var both sync.WaitGroup
		replies := make([]wire.CommandReply, 2)
		for i, c := range instances {
			body := data
			if i == 1 && old != nil && rnd.IntN(2) == 0 {
				body = old // late
			}
			both.Go(func() { replies[i] = c.answer(t.Context(), d.name, body) })
		}
		both.Wait()
		if old = data; rnd.IntN(3) > 0 {
			d.take(replies[0])
		}
		for id := range d.have {
			if !done[id] && rnd.IntN(4) == 0 {
				done[id] = true
				d.report(id, final[rnd.IntN(len(final))])
			}
		}
	}
}
