package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// ledger fills BLOCKS as a hub does.
type ledger struct {
	*world
	enc  *wire.Encoder
	next map[string]uint64 // by subject
}

func newLedger(t testing.TB) *ledger {
	return &ledger{world: newWorld(t), enc: newEncoder(), next: map[string]uint64{}}
}

// encode is the next block of a device, in the normal lane.
func (l *ledger) encode(device string, msgs ...wire.Message) (subject string, data []byte) {
	l.t.Helper()
	f := wire.Flow{Epoch: testEpoch, Lane: wire.Normal}
	subject = wire.BlockSubject(device, f)
	first := l.next[subject] + 1
	l.next[subject] += uint64(len(msgs))
	b := &wire.Block{Header: wire.Header{Flow: f, Kind: wire.KindMessages, Base: 1, First: first, Accepted: 1_700_000_000_000}, Messages: msgs}
	for i := range msgs {
		b.Blanked = b.Blanked || msgs[i].Blank != 0
	}
	data, err := l.enc.Append(nil, b)
	if err != nil {
		l.t.Fatal(err)
	}
	return subject, data
}

func (l *ledger) block(device string, msgs ...wire.Message) {
	l.t.Helper()
	subject, data := l.encode(device, msgs...)
	l.put(subject, nats.Header{"Fieldpost-Received": {"1-9"}}, data)
}

// pieces stores a block in n messages.
func (l *ledger) pieces(n int, device string, msgs ...wire.Message) {
	l.t.Helper()
	subject, data := l.encode(device, msgs...)
	for i := range n {
		l.put(subject, nats.Header{"Fieldpost-Piece": {fmt.Sprintf("%d/%d", i+1, n)}}, data[i*len(data)/n:(i+1)*len(data)/n])
	}
}

func (l *ledger) void(device string, count uint64) {
	l.t.Helper()
	f := wire.Flow{Epoch: testEpoch, Lane: wire.Normal}
	subject := wire.BlockSubject(device, f)
	data, err := wire.AppendVoid(nil, wire.Header{Flow: f, Base: 1, First: l.next[subject] + 1, Count: count, Reason: wire.ReasonTTL})
	if err != nil {
		l.t.Fatal(err)
	}
	l.next[subject] += count
	l.put(subject, nats.Header{"Fieldpost-Void": {"ttl"}}, data)
}

func msg(subject, payload string) wire.Message {
	return wire.Message{Subject: subject, Payload: []byte(payload), Time: 1_700_000_000_000}
}

// batches runs ConsumeBatch and passes on what it shows, as text.
func (l *ledger) batches(cfg BatchConfig) (*running, chan string) {
	got := make(chan string, 1000)
	c := l.client()
	return l.run(func(ctx context.Context) error {
		return c.ConsumeBatch(ctx, cfg, func(_ context.Context, b *Batch) error {
			var s strings.Builder
			fmt.Fprintf(&s, "%s %d-%d:", b.Device, b.First, b.Last)
			for m := range b.Messages() {
				fmt.Fprintf(&s, " %d %s=%s", m.Seq, m.Subject, m.Payload)
				for k, v := range m.Header {
					fmt.Fprintf(&s, " %s:%s", k, v)
				}
			}
			got <- s.String()
			return nil
		})
	}), got
}

func TestConsumeBatchShowsWhatMatches(t *testing.T) {
	l := newLedger(t)
	own := msg("sensors.a", "1")
	own.Headers, own.ID, own.Unsynced = []wire.Pair{{Key: "Unit", Value: "C"}, {Key: "Unit", Value: "F"}}, "id", true
	l.block("press-7", own, wire.Message{Blank: wire.ReasonTTL, Time: 1_700_000_000_000}, msg("alarm", "2"), msg("sensors.b", "3"))
	l.void("press-7", 10)
	l.put(wire.BlockSubject("press-7", wire.Flow{Epoch: testEpoch, Lane: wire.Normal}), nats.Header{"Fieldpost-Mark": {"1"}}, nil)
	l.block("press-8", msg("alarm", "4"))
	l.pieces(70, "press-9", msg("sensors.c", strings.Repeat("large", 2)))
	l.block("press-8", msg("sensors.d", "5"), msg("sensors.e", "6"))
	for name, test := range map[string]struct {
		cfg  BatchConfig
		want []string
	}{
		"all": {BatchConfig{}, []string{
			"press-7 1-4: 1 sensors.a=1 Unit:[C F] 3 alarm=2 4 sensors.b=3", "press-8 1-1: 1 alarm=4", "press-9 1-1: 1 sensors.c=largelarge",
			"press-8 2-3: 2 sensors.d=5 3 sensors.e=6"}},
		"filter": {BatchConfig{Filter: "sensors.>"}, []string{
			"press-7 1-4: 1 sensors.a=1 Unit:[C F] 4 sensors.b=3", "press-9 1-1: 1 sensors.c=largelarge", "press-8 2-3: 2 sensors.d=5 3 sensors.e=6"}},
		"devices": {BatchConfig{Devices: []string{"press-9", "press-8", "press-9"}, Filter: "alarm"}, []string{"press-8 1-1: 1 alarm=4"}},
		"nothing": {BatchConfig{Filter: "other"}, nil},
	} {
		test.cfg.Group, test.cfg.MaxInFlight = name, 1
		r, got := l.batches(test.cfg)
		eventually(t, "the group is there", func() error {
			_, err := l.js.Consumer(t.Context(), "BLOCKS", name)
			return err
		})
		var all []string
		for range test.want {
			all = append(all, receive(t, "a block of "+name, got))
		}
		l.settled("BLOCKS", name)
		if err := r.stop(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		close(got)
		for s := range got {
			all = append(all, s)
		}
		if !slices.Equal(all, test.want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(all, "\n"), strings.Join(test.want, "\n"))
		}
	}
}

func TestBatchMessagesHaveTheirPlace(t *testing.T) {
	l := newLedger(t)
	in := msg("sensors.a", "1")
	in.ID, in.Unsynced = "id", true
	subject, data := l.encode("press-7", msg("x", ""), in)
	l.put(subject, nats.Header{"Fieldpost-Backfill": {"1"}}, data)
	got := make(chan Message, 1)
	c := l.client()
	l.run(func(ctx context.Context) error {
		return c.ConsumeBatch(ctx, BatchConfig{Group: "g", Filter: "sensors.*"}, func(_ context.Context, b *Batch) error {
			for m := range b.Messages() {
				out := *m
				out.Payload = bytes.Clone(m.Payload)
				got <- out
				break // whoever has enough may stop
			}
			return nil
		})
	})
	m := receive(t, "a message", got)
	if m.Device != "press-7" || m.Subject != "sensors.a" || string(m.Payload) != "1" || m.ID != "id" || !m.Unsynced || !m.Backfill || m.Lane != "normal" ||
		m.Epoch != testEpoch.String() || m.Seq != 2 || !m.Time.Equal(time.UnixMilli(1_700_000_000_000)) || m.Stream != "BLOCKS" || m.StreamSeq != 1 ||
		m.Deliveries != 1 || m.Stored.IsZero() || m.Malformed != nil {
		t.Errorf("%+v", m)
	}
}

func TestConsumeBatchDoesNotOpenWhatDoesNotMatch(t *testing.T) {
	l := newLedger(t)
	// A body that does not decompress, under checksums that hold.
	subject, data := l.encode("press-7", msg("alarm", strings.Repeat("fire ", 100)))
	l.put(subject, nil, spoilBody(t, data))
	l.block("press-7", msg("sensors.a", "1"))
	r, got := l.batches(BatchConfig{Group: "g", Filter: "sensors.>", OnBroken: func(b Broken) { t.Errorf("it was decompressed: %v", b.Err) }})
	if s := receive(t, "a batch", got); s != "press-7 2-2: 2 sensors.a=1" {
		t.Error(s)
	}
	l.settled("BLOCKS", "g")
	if err := r.stop(); err != nil {
		t.Error(err)
	}
}

func TestConsumeBatchReportsBrokenBlocks(t *testing.T) {
	l := newLedger(t)
	subject, data := l.encode("press-7", msg("a", "1"))
	cut := data[:len(data)-1]
	l.put(subject, nil, cut)                                        // 1
	l.put(subject, nil, nil)                                        // 2
	l.put(subject, nats.Header{"Fieldpost-Piece": {"2/2"}}, cut)    // 3: no first
	l.put(subject, nats.Header{"Fieldpost-Piece": {"7/x"}}, cut)    // 4
	l.put("fp.blocks.other.0000000000000000.normal", nil, data)     // 5: not where it belongs
	l.put(subject, nil, spoilBody(t, bytes.Clone(longBlock(t, l)))) // 6
	l.block("press-8", msg("a", "2"))
	broken := make(chan Broken, 100)
	r, got := l.batches(BatchConfig{Group: "g", MaxInFlight: 1, OnBroken: func(b Broken) { broken <- b }})
	if s := receive(t, "a batch", got); s != "press-8 1-1: 1 a=2" {
		t.Error(s)
	}
	l.settled("BLOCKS", "g")
	for want := uint64(1); want <= 6; want++ {
		if b := receive(t, "a broken block", broken); b.StreamSeq != want || b.Err == nil || b.Subject == "" {
			t.Errorf("%+v, want %d", b, want)
		}
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if !l.log.has("a block cannot be decoded") {
		t.Error("it is not logged")
	}
}

func longBlock(t *testing.T, l *ledger) []byte {
	t.Helper()
	_, data := l.encode("press-7", msg("a", strings.Repeat("fire ", 100)))
	return data
}

func TestConsumeBatchEndsAtANewerVersion(t *testing.T) {
	l := newLedger(t)
	l.block("press-7", msg("a", "1"))
	subject, data := l.encode("press-7", msg("a", "2"))
	data[3]++
	l.put(subject, nil, data)
	r, got := l.batches(BatchConfig{Group: "g", MaxInFlight: 1, OnBroken: func(b Broken) { t.Errorf("%+v", b) }})
	receive(t, "a batch", got)
	if err := r.wait(); !errors.Is(err, wire.ErrVersion) || !strings.Contains(err.Error(), "upgrade") {
		t.Error(err)
	}
	eventually(t, "it is given back", func() error { // for a program that can read it
		if i := l.info("BLOCKS", "g"); i.NumAckPending != 1 || i.AckFloor.Stream != 1 {
			return fmt.Errorf("%+v", i)
		}
		return nil
	})
}

func TestConsumeBatchSharesPieces(t *testing.T) {
	l := newLedger(t)
	const n = 20
	var want []string
	for i := 1; i <= n; i++ {
		l.pieces(1+i%4, "press-7", msg("a", strconv.Itoa(i)))
		want = append(want, fmt.Sprintf("press-7 %d-%d: %d a=%d", i, i, i, i))
	}
	_, a := l.batches(BatchConfig{Group: "g"})
	_, b := l.batches(BatchConfig{Group: "g"})
	var all []string
	for range n {
		select {
		case s := <-a:
			all = append(all, s)
		case s := <-b:
			all = append(all, s)
		case <-time.After(patience):
			t.Fatalf("%d of %d", len(all), n)
		}
	}
	l.settled("BLOCKS", "g")
	slices.Sort(all)
	slices.Sort(want)
	if !slices.Equal(all, want) || len(a)+len(b) > 0 {
		t.Errorf("%q and %d more", all, len(a)+len(b))
	}
}

func TestConsumeBatchTriesAgain(t *testing.T) {
	l := newLedger(t)
	l.block("press-7", msg("a", "1"))
	got := make(chan int, 10)
	c := l.client()
	l.run(func(ctx context.Context) error {
		cfg := BatchConfig{Group: "g", AckWait: time.Hour, Backoff: []time.Duration{time.Millisecond}}
		return c.ConsumeBatch(ctx, cfg, func(_ context.Context, b *Batch) error {
			got <- b.Deliveries
			if b.Deliveries < 3 {
				return errors.New("not yet")
			}
			return nil
		})
	})
	for want := 1; want <= 3; want++ {
		if n := receive(t, "a delivery", got); n != want {
			t.Errorf("delivery %d, want %d", n, want)
		}
	}
	l.settled("BLOCKS", "g")
}

func TestConsumeBatchRefusesWhatCannotBe(t *testing.T) {
	l := newLedger(t)
	c := l.client()
	nothing := func(context.Context, *Batch) error { return nil }
	for say, cfg := range map[string]BatchConfig{
		"Group":       {Group: "a b"},
		"Devices":     {Group: "g", Devices: []string{"a.b"}},
		"limit":       {Group: "g", Devices: make([]string, maxFilters+1)},
		"Filter":      {Group: "g", Filter: "a.>.b"},
		"MaxInFlight": {Group: "g", MaxInFlight: -1},
	} {
		if err := c.ConsumeBatch(t.Context(), cfg, nothing); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v", say, err)
		}
	}
	if err := c.ConsumeBatch(t.Context(), BatchConfig{Group: "g"}, nil); err == nil {
		t.Error("no handler is accepted")
	}
}

// spoilBody changes the compressed body of a block under checksums that hold, as
// somebody could who writes blocks of his own.
func spoilBody(t *testing.T, data []byte) []byte {
	t.Helper()
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	sum := func(b []byte) []byte { return binary.LittleEndian.AppendUint32(nil, crc32.Checksum(b, castagnoli)) }
	n, w := binary.Uvarint(data[4:])
	end := 4 + w + int(n)
	body := data[end+4:]
	at := bytes.Index(data[:end], sum(body))
	if at < 0 {
		t.Fatal("the header has no checksum of the body")
	}
	body[len(body)-1] ^= 0xff // of zstd's own checksum
	copy(data[at:], sum(body))
	copy(data[end:], sum(data[:end]))
	if _, err := wire.ParseHeader(data); err != nil {
		t.Fatal(err)
	}
	if _, err := wire.NewDecoder().Decode(data, false); !errors.Is(err, wire.ErrCorrupt) {
		t.Fatalf("it decodes: %v", err)
	}
	return data
}

func TestConsumeBatchTellsWhatItCannotReadAnyMore(t *testing.T) {
	l := newLedger(t)
	purge := func(to uint64) {
		t.Helper()
		s, err := l.js.Stream(t.Context(), "BLOCKS")
		if err == nil {
			err = s.Purge(t.Context(), jetstream.WithPurgeSequence(to+1))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	lost, hold := make(chan Lost, 10), make(chan struct{})
	c := l.client()
	consume := func() (*running, chan uint64) {
		got := make(chan uint64, 100)
		return l.run(func(ctx context.Context) error {
			cfg := BatchConfig{Group: "g", MaxInFlight: 1, OnLost: func(l Lost) { lost <- l }}
			return c.ConsumeBatch(ctx, cfg, func(_ context.Context, b *Batch) error {
				got <- b.StreamSeq
				<-hold
				return nil
			})
		}), got
	}
	fill := func(n int) {
		t.Helper()
		for range n {
			l.block("press-7", msg("a", ""))
		}
	}
	fill(20)
	r, got := consume()
	if seq := receive(t, "a block", got); seq != 1 {
		t.Errorf("block %d", seq)
	}
	eventually(t, "as much is fetched as is held", func() error {
		if i := l.info("BLOCKS", "g"); i.NumAckPending != 9 {
			return fmt.Errorf("%d of 9", i.NumAckPending)
		}
		return nil
	})
	purge(15) // 10 to 15 were not fetched
	close(hold)
	if got := receive(t, "a loss", lost); got != (Lost{10, 15}) {
		t.Errorf("%+v", got)
	}
	l.settled("BLOCKS", "g")
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	fill(10)
	purge(25) // while nobody reads
	r, got = consume()
	if got := receive(t, "another loss", lost); got != (Lost{21, 25}) {
		t.Errorf("%+v", got)
	}
	if seq := receive(t, "a block", got); seq != 26 {
		t.Errorf("block %d", seq)
	}
	l.settled("BLOCKS", "g")
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	r, _ = consume()
	fill(1)
	l.settled("BLOCKS", "g")
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if len(lost) > 0 {
		t.Errorf("told again: %v", <-lost)
	}
}

func newEncoder() *wire.Encoder { return wire.NewEncoder(wire.Fast) }
