//go:build unix

package spool

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// The child process of the crash tests appends, reads and acknowledges until
// it reaches a labelled step and kills itself. What it was told and what "the
// hub" has taken it writes to its standard output before it goes on, so the
// parent knows both whenever it dies.

const crashEnv = "SPOOL_CRASH_CHILD"

func TestMain(m *testing.M) {
	if v := os.Getenv(crashEnv); v != "" {
		f := strings.Split(v, "|")
		if f[2] == "-1" {
			stubbornChild(f[0], f[1])
			os.Exit(0)
		}
		crashChild(f[0], f[1], f[2])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// crashKeyEnv makes the spools of the crash tests encrypted.
const crashKeyEnv = "SPOOL_CRASH_KEY"

func crashConfig(dir string) Config {
	cfg := Config{Dir: dir, MaxBytes: 256 << 20, KeepFree: -1, CommitDelay: -1, BlockBytes: 4 << 10, shape: tiny()}
	if os.Getenv(crashKeyEnv) != "" {
		cfg.Keys = [][]byte{testKey(9), testKey(8)}
	}
	return cfg
}

func crashChild(dir, point, nth string) {
	var hits atomic.Int64
	var n int64
	fmt.Sscan(nth, &n)
	cfg := crashConfig(dir)
	cfg.Fault = func(p string) error {
		if p == point && hits.Add(1) == n {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	}
	s, err := Open(cfg)
	if err != nil {
		fmt.Println("error open", err)
		return
	}
	var out sync.Mutex
	say := func(format string, args ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Fprintf(os.Stdout, format+"\n", args...)
	}
	if removes(point) {
		crashRemove(s, say)
		say("end")
		return
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for p := range 3 {
		wg.Go(func() { crashPublish(s, p, say) })
	}
	hub := make(chan struct{})
	go func() {
		defer close(hub)
		if !strings.HasPrefix(point, "seal") { // what is drained is not sealed
			crashHub(s, stop, say)
		}
	}()
	wg.Wait()
	close(stop)
	<-hub
	if err := s.Close(); err != nil {
		say("error close %v", err)
	}
	say("end")
}

// crashPublish appends batches.
func crashPublish(s *Spool, p int, say func(string, ...any)) {
	rng := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(p)))
	lane := wire.Lane(p % 2)
	for i := range 40 {
		ms := crashBatch(rng, fmt.Sprintf("%d.%d.%d", os.Getpid(), p, i))
		r, err := s.Append(context.Background(), lane, ms)
		if err != nil {
			say("error append %v", err)
			return
		}
		sayAcks(r, ms, say)
	}
}

func sayAcks(r Receipt, ms []wire.Message, say func(string, ...any)) {
	for k := range ms {
		name, _, _ := strings.Cut(string(ms[k].Payload), " ")
		say("ack %s %d %d %s", r.Flow.Epoch, r.Flow.Lane, r.First+uint64(k), name)
	}
}

// crashBatch is one to three messages with unique payloads; some of their
// blocks go to the value log.
func crashBatch(rng *rand.Rand, prefix string) (ms []wire.Message) {
	for k := range rng.IntN(3) + 1 {
		name := fmt.Sprintf("%s.%d", prefix, k)
		m := msg(name + " " + strings.Repeat("x", rng.IntN(40)))
		if rng.IntN(8) == 0 {
			noise := make([]byte, 8000)
			for j := range noise {
				noise[j] = byte('a' + rng.IntN(26))
			}
			m.Payload = append(m.Payload, noise...)
			m.Payload = append(m.Payload, noise[:rng.IntN(2000)]...)
		}
		m.ID = name
		ms = append(ms, m)
	}
	return ms
}

// stubbornChild goes on after errors until it is told to stop.
func stubbornChild(dir, point string) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	var out sync.Mutex
	say := func(format string, args ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Fprintf(os.Stdout, format+"\n", args...)
	}
	s, err := Open(crashConfig(dir))
	if err != nil {
		say("error open %v", err)
		return
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for p := range 3 {
		wg.Go(func() { stubbornPublish(s, p, stop, say) })
	}
	if !strings.HasPrefix(point, "seal") { // what is drained is not sealed
		wg.Go(func() { crashHub(s, stop, say) })
	}
	<-signals
	close(stop)
	wg.Wait()
	if err := s.Close(); err != nil {
		say("error close %v", err)
	}
	say("end")
}

func stubbornPublish(s *Spool, p int, stop chan struct{}, say func(string, ...any)) {
	rng := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(p)))
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		ms := crashBatch(rng, fmt.Sprintf("%d.%d.%d", os.Getpid(), p, i))
		if r, err := s.Append(context.Background(), wire.Lane(p%2), ms); err != nil {
			say("error append %v", err)
			time.Sleep(time.Millisecond) // it is the rate of the attempts that this bounds
		} else {
			sayAcks(r, ms, say)
		}
	}
}

// crashHub takes blocks as a hub would and acknowledges them a little later.
func crashHub(s *Spool, stop chan struct{}, say func(string, ...any)) {
	dec := wire.NewDecoder()
	next := map[wire.Flow]uint64{}
	for {
		moved := false
		for _, h := range s.Flows() {
			data, err := s.Read(h.Flow, max(next[h.Flow], h.First))
			if errors.Is(err, ErrEnd) {
				continue
			}
			if err != nil {
				say("error read %v", err)
				return
			}
			b, err := dec.Decode(data, false)
			if err != nil {
				say("error decode %v", err)
				return
			}
			for i := range b.Messages {
				name, _, _ := strings.Cut(string(b.Messages[i].Payload), " ")
				say("hub %s %d %d %s", b.Epoch, b.Lane, b.First+uint64(i), name)
			}
			if b.Kind == wire.KindVoid {
				say("void %s %d %d %d", b.Epoch, b.Lane, b.First, b.Last())
			}
			next[h.Flow] = b.Last() + 1
			if err := s.Received(b.Flow, wire.Ranges{b.Range()}); err != nil {
				say("error received %v", err)
				return
			}
			moved = true
		}
		if !moved {
			select {
			case <-stop:
				return
			case <-s.Updates():
			case <-time.After(time.Millisecond):
			}
		}
	}
}

// ledger is what the parent knows over all runs on one folder.
type ledger struct {
	acked map[string]place // by message
	hub   map[place]string
	void  map[place]bool
}

func newLedger() *ledger {
	return &ledger{acked: map[string]place{}, hub: map[place]string{}, void: map[place]bool{}}
}

// run starts a child and collects what it said. killed tells whether it died
// at the step.
func (l *ledger) run(t *testing.T, dir, point string, nth int) (killed bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%s|%d", crashEnv, dir, point, nth))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	ended := l.collect(t, out)
	ws, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case err == nil && ended:
		return false
	case ws.Signaled() && ws.Signal() == syscall.SIGKILL && ctx.Err() == nil:
		return true
	}
	t.Fatalf("%s:%d: child: %v\n%s", point, nth, err, stderr.String())
	return false
}

func (l *ledger) collect(t *testing.T, out []byte) (ended bool) {
	t.Helper()
	sc := bufio.NewScanner(bytes.NewReader(out))
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		switch {
		case len(f) == 1 && f[0] == "end":
			ended = true
		case len(f) == 5:
			e, err := wire.ParseEpoch(f[1])
			var lane, a, b uint64
			fmt.Sscan(f[2], &lane)
			fmt.Sscan(f[3], &a)
			if err != nil {
				continue // the last line may be cut off
			}
			p := place{wire.Flow{Epoch: e, Lane: wire.Lane(lane)}, a}
			switch f[0] {
			case "ack":
				l.acked[f[4]] = p
			case "hub":
				l.took(t, p, f[4])
			case "void":
				fmt.Sscan(f[4], &b)
				for ; p.seq <= b; p.seq++ {
					l.void[p] = true
				}
			}
		case len(f) > 0 && f[0] == "error":
			t.Errorf("child: %s", sc.Text())
		}
	}
	return ended
}

// took notes what the hub has under a place: never two different things.
func (l *ledger) took(t *testing.T, p place, name string) {
	t.Helper()
	if old, ok := l.hub[p]; ok && old != name {
		t.Errorf("%v was %s and is %s", p, old, name)
	}
	if l.void[p] {
		t.Errorf("%v was void and is %s", p, name)
	}
	l.hub[p] = name
}

// check opens the folder as the next run would, drains it, and compares.
func (l *ledger) check(t *testing.T, dir string) {
	t.Helper()
	s, err := Open(crashConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	dec := wire.NewDecoder()
	for _, h := range s.Flows() {
		for next := h.First; ; {
			data, err := s.Read(h.Flow, next)
			if errors.Is(err, ErrEnd) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			b, err := dec.Decode(data, false)
			if err != nil {
				t.Fatal(err)
			}
			if b.First < next && next != h.First {
				t.Errorf("%s: block %s read at %d", h.Flow, b.Range(), next)
			}
			for i := range b.Messages {
				name, _, _ := strings.Cut(string(b.Messages[i].Payload), " ")
				l.took(t, place{h.Flow, b.First + uint64(i)}, name)
			}
			next = b.Last() + 1
		}
	}
	l.compare(t)
	l.retry(t, s)
}

// compare: every acked message is where its receipt says, nothing is there
// twice, and every publisher's messages are in the order it sent them.
func (l *ledger) compare(t *testing.T) {
	t.Helper()
	seen := map[string]place{}
	for p, name := range l.hub {
		if q, ok := seen[name]; ok {
			t.Errorf("%s is at %v and at %v", name, p, q)
		}
		seen[name] = p
	}
	for name, p := range l.acked {
		if l.hub[p] != name {
			t.Errorf("%s was acked at %v; there is %q", name, p, l.hub[p])
		}
	}
	var names []string
	for name := range seen {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return slices.Compare(numbers(a), numbers(b)) })
	for i := 1; i < len(names); i++ {
		a, b := numbers(names[i-1]), numbers(names[i])
		if a[0] == b[0] && a[1] == b[1] && seen[names[i-1]].seq >= seen[names[i]].seq {
			t.Errorf("%s at %v comes after %s at %v", names[i-1], seen[names[i-1]], names[i], seen[names[i]])
		}
	}
}

func numbers(name string) []int {
	out := make([]int, 4)
	fmt.Sscanf(name, "%d.%d.%d.%d", &out[0], &out[1], &out[2], &out[3])
	return out
}

// retry publishes acked messages again, by id: each is recognised.
func (l *ledger) retry(t *testing.T, s *Spool) {
	t.Helper()
	n := 0
	for name, p := range l.acked {
		m := msg(name)
		m.ID = name
		r, err := s.Append(context.Background(), p.flow.Lane, []wire.Message{m})
		if err != nil {
			t.Fatal(err)
		}
		if r.Duplicates != 1 || r.First != p.seq || r.Flow != p.flow {
			t.Errorf("retry of %s at %v: %+v", name, p, r)
		}
		if n++; n == 100 {
			return
		}
	}
}

func TestKillAtEveryPoint(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process for every labelled step")
	}
	for _, point := range points {
		if strings.HasPrefix(point, "quarantine") || strings.HasPrefix(point, "salvage") {
			continue // TestKillInQuarantine
		}
		if removes(point) {
			continue // TestKillWhileRemoving
		}
		if strings.HasPrefix(point, "memory") {
			continue // TestMemoryFirstFaults: what is lost there was never durable
		}
		t.Run(strings.ReplaceAll(point, ":", "-"), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			l := newLedger()
			nth := rand.IntN(3) + 1
			switch {
			case strings.HasPrefix(point, "recover"):
				l.run(t, dir, "commit:publish", 30)
				nth = 1
			case point == "epoch:begin":
				nth = 1
			case point == "read:open": // of a run before: what is still in the tail needs no opening
				l.run(t, dir, "seal:done", 3)
				nth = 1
			case strings.HasPrefix(point, "seal"): // a drained head is not sealed: let one fill at once
				nth = 1
			case point == "commit:vlog-sync":
				nth = rand.IntN(10) + 1
			case strings.HasPrefix(point, "commit"):
				nth = rand.IntN(40) + 1
			}
			if !l.run(t, dir, point, nth) {
				t.Errorf("%s was not reached %d times", point, nth)
			}
			l.check(t, dir)
			if rand.IntN(4) == 0 { // and once more on the same folder
				l.run(t, dir, "commit:done", 20)
				l.check(t, dir)
			}
		})
	}
}

// TestKillEncrypted is TestKillAtEveryPoint where encryption makes a difference.
func TestKillEncrypted(t *testing.T) {
	if testing.Short() {
		t.Skip("starts several processes")
	}
	t.Setenv(crashKeyEnv, "1")
	for _, point := range []string{"rotate:open", "rotate:sync", "commit:vlog-sync", "commit:mem-sync", "commit:done", "seal:close", "seal:write"} {
		dir := t.TempDir()
		l := newLedger()
		if !l.run(t, dir, point, 1) {
			t.Errorf("%s was not reached", point)
		}
		l.check(t, dir)
		l.run(t, dir, "commit:done", 20)
		l.check(t, dir)
	}
}
