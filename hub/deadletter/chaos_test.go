package deadletter

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/store"
)

// dice fails steps at random.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
	off bool
}

func (d *dice) at(string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.off && d.rng.IntN(12) == 0 {
		return errCrash
	}
	return nil
}

func (d *dice) roll(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

// TestInstancesAndOperatorsAtOnce: two instances come and go and stumble, while
// somebody retries and purges. In the end each given-up message is exactly one
// of: a letter, a retry, purged.
func TestInstancesAndOperatorsAtOnce(t *testing.T) {
	const messages = 40
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	d := &dice{rng: rand.New(rand.NewPCG(seed, 0))}
	w := newWorld(t)
	fault := d.at
	w.fault.Store(&fault)
	change := func(c *Config) { c.AckWait, c.Fault = 300*time.Millisecond, d.at }
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 4 {
				in := w.run(change)
				time.Sleep(time.Duration(d.roll(400)) * time.Millisecond) // how long it lives is part of the game
				in.stop()
			}
		})
	}
	operator, err := New(Config{Store: w.s, Streams: []string{"EDGE"}, Fault: d.at, Log: w.log})
	if err != nil {
		t.Fatal(err)
	}
	purged := map[string]bool{} // may be
	wg.Go(func() {
		for range 25 {
			page, _, err := operator.List(w.ctx(), Query{}, 100)
			if err != nil || len(page) == 0 {
				time.Sleep(20 * time.Millisecond)
				continue
			}
			m := page[d.roll(len(page))]
			if d.roll(2) == 0 {
				operator.Retry(w.ctx(), []uint64{m.Seq}) // whatever comes of it
				continue
			}
			purged[m.Header.Get(HdrStreamSeq)+m.Header.Get(HdrConsumer)] = true
			operator.Purge(w.ctx(), []uint64{m.Seq})
		}
	})
	a, b := w.consumer("EDGE", "a"), w.consumer("EDGE", "b")
	for i := range messages {
		w.publish(fmt.Sprintf("edge.d.%d", i%3), fmt.Sprint(i), nil)
		w.each(a, 1, term)
		w.each(b, 1, term)
	}
	w.advised(2 * messages)
	wg.Wait()
	d.mu.Lock()
	d.off = true
	d.mu.Unlock()
	in := w.run(change)
	w.settled()
	if out, err := in.Retry(w.ctx(), w.seqs()); err != nil { // ends what was begun
		t.Fatalf("%+v, %v", out, err)
	}
	if left := w.all(store.Dead); len(left) > 0 {
		t.Errorf("%d letters are left", len(left))
	}
	times := map[string]int{}
	for _, m := range w.all(store.Retry) {
		times[m.Header.Get(HdrStreamSeq)+m.Subject[len(retryPrefix):]]++
	}
	for seq := range messages {
		for _, c := range []string{"a", "b"} {
			key := fmt.Sprint(seq+1) + c
			if n := times[key]; n > 1 || n == 0 && !purged[key] {
				t.Errorf("message %s was retried %d times; purged, perhaps: %v", key, n, purged[key])
			}
		}
	}
}

// seqs of all letters.
func (w *world) seqs() (out []uint64) {
	for _, m := range w.all(store.Dead) {
		out = append(out, m.Seq)
	}
	return out
}
