package unpack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// world is a real JetStream with a ledger that the test fills.
type world struct {
	t      testing.TB
	s      *store.Store
	dir    string
	routes Table
	layout store.Layout
	enc    *wire.Encoder
	rng    *rand.Rand

	flows  map[string]*flowState // by ledger subject
	n      int                   // messages made
	want   map[string][]sent     // by stream
	poison []string              // <subject> <block>
	voids  []string              // <subject of DEAD> <gap> <reason>
}

type flowState struct {
	set  wire.Ranges
	next uint64
	last uint64 // ledger sequence
}

// sent is a message as a stream must hold it.
type sent struct{ subject, epoch, seq, lane, data, header string }

func newWorld(t testing.TB) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "fieldpost-unpack") // not TempDir: the server may still write after a shutdown
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	w := &world{
		t: t, dir: dir, enc: wire.NewEncoder(wire.Fast), rng: rand.New(rand.NewPCG(seed, 0)),
		routes: Table{
			{Match: "alarm.>", Stream: "ALARMS", Prefix: "alarms"},
			{Match: "lost.>", Stream: "PACKED", Prefix: "packed", Packed: true},
			{Match: ">", Stream: "EDGE", Prefix: "edge"},
		},
		layout: store.Layout{BlocksMaxBytes: 128 << 20, DeadMaxBytes: 16 << 20, Routes: []store.RouteStream{
			{Name: "EDGE", Subjects: []string{"edge.>"}, MaxBytes: 256 << 20, Compress: true},
			{Name: "ALARMS", Subjects: []string{"alarms.>"}, MaxBytes: 64 << 20},
		}},
		flows: map[string]*flowState{}, want: map[string][]sent{},
	}
	w.open()
	t.Cleanup(func() { w.s.Close() })
	return w
}

func (w *world) open() {
	w.t.Helper()
	var err error
	w.s, err = store.Open(w.ctx(), store.Config{Dir: w.dir, Listen: "127.0.0.1:-1", MaxStore: 16 << 30})
	if err == nil {
		err = w.s.EnsureStreams(w.ctx(), w.layout)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	w.t.Cleanup(cancel)
	return ctx
}

func (w *world) flow(device string, n byte, lane wire.Lane) (string, wire.Flow, *flowState) {
	f := wire.Flow{Epoch: wire.Epoch{1, n}, Lane: lane}
	subject := wire.BlockSubject(device, f)
	st := w.flows[subject]
	if st == nil {
		st = &flowState{next: 1}
		w.flows[subject] = st
	}
	return subject, f, st
}

// put stores a block in the ledger as ingest does, now and then in pieces, and
// returns the sequence where it begins.
func (w *world) put(subject string, st *flowState, r wire.Range, h nats.Header, data []byte) uint64 {
	w.t.Helper()
	st.set = st.set.Add(r)
	h["Fieldpost-Received"] = []string{st.set.String()}
	n := 1
	if w.rng.IntN(6) == 0 && h[hdrVoid] == nil {
		n = 2 + w.rng.IntN(3)
	}
	msgs := inPieces(subject, h, data, n)
	for {
		msgs[0].Header[store.GuardSubject] = []string{strconv.FormatUint(st.last, 10)}
		seq, err := w.s.PublishBatch(w.ctx(), msgs)
		if errors.Is(err, store.ErrGuard) { // a mark
			m, err := w.s.Last(w.ctx(), store.Blocks, subject)
			if err != nil {
				w.t.Fatal(err)
			}
			st.last = m.Seq
			continue
		}
		if err != nil {
			w.t.Fatal(err)
		}
		st.last, st.next = seq, r.Last+1
		return seq + 1 - uint64(n)
	}
}

// inPieces is a block as n messages of the ledger.
func inPieces(subject string, h nats.Header, data []byte, n int) (out []store.Msg) {
	for i := range n {
		m := store.Msg{Subject: subject, Header: nats.Header{}, Data: data[i*len(data)/n : (i+1)*len(data)/n]}
		if i == n-1 {
			m.Header = h
		}
		if n > 1 {
			m.Header[hdrPiece] = []string{fmt.Sprintf("%d/%d", i+1, n)}
		}
		out = append(out, m)
	}
	return out
}

var subjects = []string{"a.b", "alarm.fire", "temp", "lost.x", "x.y.z", "alarm"}

// block appends a block of count messages.
func (w *world) block(device string, epoch byte, lane wire.Lane, count int) {
	w.t.Helper()
	subject, f, st := w.flow(device, epoch, lane)
	h := nats.Header{}
	if w.rng.IntN(4) == 0 {
		h["Fieldpost-Backfill"] = []string{"1"}
	}
	b := &wire.Block{Header: wire.Header{Flow: f, Kind: wire.KindMessages, Base: 1, First: st.next, Accepted: 1_700_000_000_000}}
	for i := range count {
		w.n++
		m := wire.Message{
			Subject: subjects[w.rng.IntN(len(subjects))], Payload: fmt.Appendf(nil, "message %d", w.n),
			Time: 1_700_000_000_000 + int64(w.n*7),
		}
		switch w.rng.IntN(8) {
		case 0:
			m.ID = fmt.Sprint("id-", w.n)
		case 1:
			m.Headers = []wire.Pair{{Key: "k", Value: "1"}, {Key: "K", Value: "2"}, {Key: "k", Value: "3"}}
		case 2:
			m.Unsynced = true
		case 3:
			m = wire.Message{Time: m.Time, Blank: []wire.Reason{wire.ReasonTTL, wire.ReasonPurge}[w.rng.IntN(2)]}
		}
		b.Messages = append(b.Messages, m)
		w.expect(device, f, st.next+uint64(i), &m, h["Fieldpost-Backfill"] != nil)
	}
	if gaps := w.gapsIn(device, b); len(gaps) > 0 && w.rng.IntN(3) > 0 { // else as an agent wrote that did not mark them
		b.Blanked, h["Fieldpost-Blank"] = true, []string{"1"}
		w.voids = append(w.voids, gaps...)
	}
	data, err := w.enc.Append(nil, b)
	if err != nil {
		w.t.Fatal(err)
	}
	w.put(subject, st, wire.Range{First: st.next, Last: st.next + uint64(count) - 1}, h, data)
}

// gapsIn is what is to be reported of a block's blank messages.
func (w *world) gapsIn(device string, b *wire.Block) (out []string) {
	for i := 0; i < len(b.Messages); {
		why, first := b.Messages[i].Blank, i
		for i < len(b.Messages) && b.Messages[i].Blank == why {
			i++
		}
		if why != 0 {
			r := wire.Range{First: b.First + uint64(first), Last: b.First + uint64(i) - 1}
			out = append(out, fmt.Sprintf("dead.gap.%s %s/%s %s", device, b.Flow, r, why))
		}
	}
	return out
}

func (w *world) expect(device string, f wire.Flow, seq uint64, m *wire.Message, backfill bool) {
	r := w.routes.Route(m.Subject)
	if m.Blank != 0 || r == nil || r.Packed {
		return
	}
	s := sent{subject: r.Prefix + "." + device + "." + m.Subject, epoch: f.Epoch.String(), seq: fmt.Sprint(seq), data: string(m.Payload)}
	if f.Lane != wire.Normal {
		s.lane = f.Lane.String()
	}
	if m.ID != "" {
		s.header += "id=" + m.ID
	}
	if m.Unsynced {
		s.header += "unsynced"
	}
	if backfill {
		s.header += "backfill"
	}
	if m.Headers != nil {
		s.header += "k=[1 3] K=[2]"
	}
	s.header += time.UnixMilli(m.Time).UTC().Format("2006-01-02T15:04:05.000Z")
	w.want[r.Stream] = append(w.want[r.Stream], s)
}

// void appends a void of count sequences.
func (w *world) void(device string, epoch byte, lane wire.Lane, count uint64) {
	w.t.Helper()
	subject, f, st := w.flow(device, epoch, lane)
	h := wire.Header{Flow: f, Base: 1, First: st.next, Count: count, Accepted: 1_700_000_000_000, Reason: wire.ReasonDropOldest}
	data, err := wire.AppendVoid(nil, h)
	if err != nil {
		w.t.Fatal(err)
	}
	w.voids = append(w.voids, fmt.Sprintf("dead.gap.%s %s/%s drop_oldest", device, f, h.Range()))
	w.put(subject, st, h.Range(), nats.Header{"Fieldpost-Void": {"drop_oldest"}}, data)
}

// junk appends a block that cannot be decoded.
func (w *world) junk(device string, epoch byte, lane wire.Lane) {
	w.t.Helper()
	subject, _, st := w.flow(device, epoch, lane)
	seq := w.put(subject, st, wire.Range{First: st.next, Last: st.next + 2}, nats.Header{}, []byte("this is no block"))
	w.poison = append(w.poison, fmt.Sprintf("dead.BLOCKS.%s %d", subject, seq))
}

// some appends n random things of several devices.
func (w *world) some(n int) {
	w.t.Helper()
	for range n {
		device, epoch, lane := fmt.Sprint("dev", w.rng.IntN(3)), byte(w.rng.IntN(2)), wire.Lane(w.rng.IntN(2))
		switch w.rng.IntN(12) {
		case 0:
			w.void(device, epoch, lane, 1+w.rng.Uint64N(5))
		case 1:
			w.junk(device, epoch, lane)
		default:
			w.block(device, epoch, lane, 1+w.rng.IntN(40))
		}
	}
}

func (w *world) config() Config {
	return Config{
		Store: w.s, Routes: w.routes, Instance: fmt.Sprintf("i%d", w.rng.Uint64()),
		LeaseRenew: 50 * time.Millisecond, CheckpointEvery: 20 * time.Millisecond, RetainEvery: 20 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(logWriter{w.t}, nil)),
	}
}

type logWriter struct{ t testing.TB }

func (l logWriter) Write(p []byte) (int, error) {
	if testing.Verbose() {
		l.t.Logf("%s", bytes.TrimSpace(p))
	}
	return len(p), nil
}

// start runs an unpacker; stop may be called more than once.
func (w *world) start(cfg Config) (u *Unpacker, stop func()) {
	w.t.Helper()
	u, err := New(w.ctx(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := u.Run(ctx); err != nil {
			w.t.Error(err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	w.t.Cleanup(stop)
	return u, stop
}

// wait polls until ok or for three minutes: a loaded machine syncs slowly.
func (w *world) wait(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("waited in vain: %s; %s\n%s", what, w.state(), strings.Join(ours(), "\n\n"))
		}
	}
}

// state says how far everything is.
func (w *world) state() (out string) {
	for _, name := range []string{store.Blocks, "EDGE", "ALARMS", store.Dead} {
		out += fmt.Sprintf("%s %+v, want %d; ", name, w.info(name), len(w.want[name]))
	}
	out += fmt.Sprintf("%d poison, %d voids; ", len(w.poison), len(w.voids))
	kv, err := w.s.KV(w.ctx(), store.HubBucket)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, key := range []string{keyCheckpoint("EDGE"), keyCheckpoint("ALARMS"), keyCheckpoint(gapsName), keyLease("EDGE"), keyLease("housekeeping")} {
		if e, err := kv.Get(w.ctx(), key); err == nil {
			out += fmt.Sprintf("%s %s; ", key, e.Value())
		}
	}
	return out
}

// caughtUp waits until everything wanted is stored and DEAD is complete.
func (w *world) caughtUp() {
	w.t.Helper()
	w.wait("all unpacked", func() bool {
		for stream, want := range w.want {
			if w.info(stream).Last < uint64(len(want)) {
				return false
			}
		}
		return w.info(store.Dead).Last >= uint64(len(w.poison)+len(w.voids))
	})
}

func (w *world) info(stream string) store.Info {
	w.t.Helper()
	i, err := w.s.Info(w.ctx(), stream)
	if err != nil {
		w.t.Fatal(err)
	}
	return i
}

// all reads what a stream holds.
func (w *world) all(stream string) (out []store.Stored) {
	w.t.Helper()
	r, err := w.s.Reader(stream, 1)
	if err != nil {
		w.t.Fatal(err)
	}
	defer r.Close()
	for {
		m, err := r.Next(w.ctx())
		if errors.Is(err, store.ErrNotFound) {
			return out
		}
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, m)
	}
}

// check compares every stream with what it must hold: whatever is still there
// stands at its place, and nothing comes after.
func (w *world) check() {
	w.t.Helper()
	for stream, want := range w.want {
		got := w.all(stream)
		if last := w.info(stream).Last; last != uint64(len(want)) {
			w.t.Errorf("%s: %d messages were stored, want %d", stream, last, len(want))
		}
		for _, m := range got {
			if m.Seq > uint64(len(want)) {
				break
			}
			if g := toSent(m); g != want[m.Seq-1] {
				w.t.Fatalf("%s %d:\n got %+v\nwant %+v", stream, m.Seq, g, want[m.Seq-1])
			}
		}
	}
	w.checkDead()
}

func (w *world) checkDead() {
	w.t.Helper()
	var poison, voids []string
	for _, m := range w.all(store.Dead) {
		if gap := m.Header.Get(HdrGap); gap != "" {
			voids = append(voids, m.Subject+" "+gap+" "+m.Header.Get(HdrReason))
			continue
		}
		poison = append(poison, m.Subject+" "+m.Header.Get(HdrBlock))
		if string(m.Data) != "this is no block" || m.Header.Get(HdrReason) != "corrupt" {
			w.t.Errorf("poison %v holds %q", m.Header, m.Data)
		}
	}
	// Only the order within a device is promised, and the streams race.
	slices.Sort(poison)
	want := slices.Sorted(slices.Values(w.poison))
	if !slices.Equal(poison, want) {
		w.t.Errorf("poison:\n got %q\nwant %q", poison, want)
	}
	if !slices.Equal(voids, w.voids) {
		w.t.Errorf("gaps:\n got %q\nwant %q", voids, w.voids)
	}
}

func toSent(m store.Stored) sent {
	h := m.Header
	s := sent{subject: m.Subject, epoch: h.Get(HdrEpoch), seq: h.Get(HdrSeq), lane: h.Get(HdrLane), data: string(m.Data)}
	if id := h.Get(HdrID); id != "" {
		s.header += "id=" + id
	}
	s.header += h.Get(HdrClock)
	if h.Get(HdrBackfill) == "true" {
		s.header += "backfill"
	}
	if h["k"] != nil {
		s.header += fmt.Sprintf("k=%v K=%v", h["k"], h["K"])
	}
	s.header += h.Get(HdrTime)
	for k := range maps.Keys(h) {
		if !strings.HasPrefix(k, "Fieldpost-") && !strings.HasPrefix(k, "Nats-") && k != "k" && k != "K" {
			s.header += " unknown " + k
		}
	}
	return s
}

// noGoroutines waits until nothing of the hub's packages or of their
// connections runs any more.
func noGoroutines(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		left := ours()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines left:\n%s", len(left), strings.Join(left, "\n\n"))
		}
	}
}

// ours lists the goroutines of the hub's packages and of their connections.
func ours() (out []string) {
	buf := make([]byte, 1<<22)
	for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if (strings.Contains(g, "nats-io/nats.go") || strings.Contains(g, "fieldpost/hub/")) && !strings.Contains(g, "testing.tRunner") {
			out = append(out, g)
		}
	}
	return out
}
