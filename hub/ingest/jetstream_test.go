package ingest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// openStore starts an embedded server with the ledger.
func openStore(t testing.TB) *store.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	st, err := store.Open(ctx, store.Config{Dir: t.TempDir(), Listen: "127.0.0.1:-1", MaxStore: 8 << 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	if err := st.EnsureStreams(ctx, store.Layout{BlocksMaxBytes: 4 << 30, DeadMaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	return st
}

func startOn(t testing.TB, st *store.Store, cfg Config) *running {
	t.Helper()
	nc, err := st.Connect("ingest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	cfg.Conn, cfg.Store, cfg.MaxPayload = nc, st, st.MaxPayload()
	return start(t, cfg)
}

func readLedger(t testing.TB, st *store.Store) (out []store.Stored) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	info, err := st.Info(ctx, store.Blocks)
	if err != nil {
		t.Fatal(err)
	}
	for seq := info.First; seq <= info.Last; seq++ {
		m, err := st.Get(ctx, store.Blocks, seq)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

// Two instances take in the blocks of one device, which runs twice (a clone
// beside its original, cutting its blocks differently) over links that break all
// the time. Nothing is stored twice.
func TestTwoInstancesRace(t *testing.T) {
	st := openStore(t)
	var c counts
	for i := range 2 {
		startOn(t, st, Config{Instance: fmt.Sprintf("i%d", i), Hooks: c.hooks()})
	}
	flows := map[wire.Flow]uint64{flow(1, wire.Normal): 6000, flow(2, wire.Normal): 3000, flow(3, wire.Urgent): 3000}
	urls := []string{st.ClientURL()}
	a, b := newSource(t, 7, flows), newSource(t, 10, flows)
	startUplink(t, urls, "cam", "original", a, 200*time.Millisecond)
	startUplink(t, urls, "cam", "clone", b, 150*time.Millisecond)
	a.wait(t)
	b.wait(t)
	checkLedger(t, readLedger(t, st), flows)
	t.Log(&c)
}

// Messages above what NATS takes in one piece come over a link and from a file.
func TestLargeMessages(t *testing.T) {
	st := openStore(t)
	in := startOn(t, st, Config{})
	flows := map[wire.Flow]uint64{flow(1, wire.Normal): 6, flow(1, wire.Bulk): 3}
	src := newSource(t, 2, flows)
	src.size = 3 << 20
	startUplink(t, []string{st.ClientURL()}, "cam", "p", src, 0)
	src.wait(t)
	if large := checkLedger(t, readLedger(t, st), flows); large != 9 {
		t.Errorf("%d of 9 blocks came in pieces", large)
	}
	before := len(readLedger(t, st))
	f := flow(7, wire.Normal)
	whole := newSource(t, 1, map[wire.Flow]uint64{f: 2})
	whole.size = 8 << 20
	if _, err := importInto(in.Ingest, file(t, whole, "cam-2", "", 1), false); err != nil {
		t.Fatal(err)
	}
	if large := checkLedger(t, readLedger(t, st)[before:], map[wire.Flow]uint64{f: 2}); large != 2 {
		t.Errorf("%d of 2 blocks came in pieces", large)
	}
}

// A ledger that somebody made take less gets smaller pieces.
func TestLedgerTakesLess(t *testing.T) {
	st := openStore(t)
	startOn(t, st, Config{})
	js := st.JetStream()
	blocks, err := js.Stream(t.Context(), store.Blocks)
	if err != nil {
		t.Fatal(err)
	}
	cfg := blocks.CachedInfo().Config
	cfg.MaxMsgSize = 50_000
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	flows := map[wire.Flow]uint64{flow(1, wire.Normal): 5}
	src := newSource(t, 1, flows)
	src.size = 300_000
	startUplink(t, []string{st.ClientURL()}, "cam", "p", src, 0)
	src.wait(t)
	if large := checkLedger(t, readLedger(t, st), flows); large != 5 {
		t.Errorf("%d of 5 blocks came in pieces", large)
	}
}

// The same frames reach two instances: whichever is late finds its guard failed,
// compares ranges, and acks without storing.
func TestSameBlocksAtTwoInstances(t *testing.T) {
	st := openStore(t)
	f := flow(1, wire.Normal)
	var clients []*client
	for i := range 2 {
		in := startOn(t, st, Config{Instance: fmt.Sprintf("i%d", i)})
		nc, err := st.Connect("device")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		// The first open reaches i0 alone, the second any: until one is at each.
		for {
			c := dialAs(t, nc, "cam", in.Instance())
			if c.reply.Instance == in.Instance() {
				clients = append(clients, c)
				break
			}
			time.Sleep(50 * time.Millisecond) // opens are limited
		}
	}
	enc := wire.NewEncoder(wire.Fast)
	for seq := uint64(1); seq <= 500; seq += 5 {
		b := block(t, enc, f, seq, seq+4, 60)
		for _, c := range clients {
			c.send(wire.FrameBlock, b)
		}
	}
	for _, c := range clients {
		c.acked(f, 500)
	}
	checkLedger(t, readLedger(t, st), map[wire.Flow]uint64{f: 500})
}

// A full ledger means no ack, and room made again means that it goes on.
func TestFullLedger(t *testing.T) {
	st := openStore(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := st.EnsureStreams(ctx, store.Layout{BlocksMaxBytes: 64 << 10, DeadMaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	var c counts
	startOn(t, st, Config{Hooks: c.hooks()})
	flows := map[wire.Flow]uint64{flow(1, wire.Normal): 4000}
	src := newSource(t, 20, flows)
	startUplink(t, []string{st.ClientURL()}, "cam", "p", src, 0)
	waitFor(t, func() bool { return c.get("failed") > 0 })
	select {
	case <-src.done:
		t.Fatal("everything is acked although the ledger is full")
	default:
	}
	if err := st.EnsureStreams(ctx, store.Layout{BlocksMaxBytes: 64 << 20, DeadMaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	src.wait(t)
	checkLedger(t, readLedger(t, st), flows)
	if _, err := st.Last(ctx, store.Blocks, "fp.blocks.none.none.none"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Last of nothing: %v", err)
	}
}
