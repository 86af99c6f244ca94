package hub

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/hub/trace"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// where traces a message of the device.
func (d *fakeDevice) where(r *running, seq uint64) admin.Trace {
	d.t.Helper()
	got, err := r.admin().Trace(d.t.Context(), d.name, d.flow.Epoch.String(), d.flow.Lane.String(), seq)
	if err != nil {
		d.t.Fatal(err)
	}
	return got
}

// until traces a message until it is in a state.
func (d *fakeDevice) until(r *running, seq uint64, state string) (got admin.Trace) {
	d.t.Helper()
	eventually(d.t, fmt.Sprintf("%d is %s", seq, state), func() bool {
		got = d.where(r, seq)
		return got.State == state
	})
	return got
}

// told wants a step of a hop and state that says the words.
func told(t *testing.T, got admin.Trace, hop, state string, words ...string) (s admin.TraceStep) {
	t.Helper()
	for _, s = range got.Steps {
		if s.Hop == hop && s.State == state && says([]string{s.Text + " " + s.Reason + " " + s.Consumer}, words...) {
			return s
		}
	}
	t.Errorf("%s/%s/%d is %s, without a step %s %s %q: %+v", got.Epoch, got.Lane, got.Seq, got.State, hop, state, words, got.Steps)
	return s
}

// with encodes the next message with an id or a blank in its place.
func (d *fakeDevice) with(change func(*wire.Block), payloads ...string) []byte {
	d.t.Helper()
	b := d.messages(payloads...)
	change(b)
	data, err := wire.NewEncoder(wire.Fast).Append(nil, b)
	if err != nil {
		d.t.Fatal(err)
	}
	return data
}

func (d *fakeDevice) void(n uint64, why wire.Reason) []byte {
	d.t.Helper()
	data, err := wire.AppendVoid(nil, wire.Header{Flow: d.flow, Base: 1, First: d.next, Count: n, Accepted: time.Now().UnixMilli(), Reason: why})
	if err != nil {
		d.t.Fatal(err)
	}
	d.next += n
	return data
}

func TestTraceOfWhatWasNotReceived(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	d := newDevice(r, "press-7")
	got := d.where(r, 1)
	told(t, got, "ledger", "unknown", "knows nothing")
	told(t, got, "device", "unknown", "never heard")
	if got.State != admin.TraceUnknown {
		t.Errorf("state %s", got.State)
	}
	d.open()
	d.beat(60)
	eventually(t, "the heartbeat is known", func() bool {
		dev, err := r.admin().Device(t.Context(), "press-7")
		return err == nil && dev.Epoch != ""
	})
	got = d.where(r, 1)
	told(t, got, "ledger", "not_received", "nothing of")
	told(t, got, "device", "may_be_spooled", "12 messages", "only the device knows")
	d.send(wire.FrameBlock, d.block("one"))
	d.acked()
	got = d.where(r, 2)
	told(t, got, "ledger", "not_received", "1-1")
	if got.State != admin.TraceNotReceived {
		t.Errorf("state %s", got.State)
	}
	bulk, err := r.admin().Trace(t.Context(), "press-7", d.flow.Epoch.String(), "bulk", 1)
	if err != nil {
		t.Fatal(err)
	}
	told(t, bulk, "device", "not_spooled", "nothing waits")
	other, err := r.admin().Trace(t.Context(), "press-7", "00000000000000aa", "normal", 1)
	if err != nil || other.State != admin.TraceUnknown {
		t.Errorf("another epoch: %+v, %v", other, err)
	}
	told(t, other, "device", "may_be_spooled", "its epoch is "+d.flow.Epoch.String())
}

func TestTraceFollowsAMessageToItsConsumers(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	d := newDevice(r, "press-7")
	d.open()
	for i := range 7 {
		d.send(wire.FrameBlock, d.block("a", "b", fmt.Sprint(i)))
		d.acked()
	}
	for seq := uint64(1); seq <= 21; seq++ {
		got := d.until(r, seq, admin.TraceStored)
		received, stored := told(t, got, "ledger", "received"), told(t, got, "stream", "stored", "still there")
		if received.Block != (seq+2)/3 || stored.Block != received.Block || stored.Seq != seq || stored.Stream != "EDGE" || received.Time.IsZero() || stored.Time.IsZero() || got.Subject != "sensors.temp" {
			t.Errorf("%d: %+v", seq, got)
		}
		told(t, got, "consumer", "none")
	}
	nc := r.connect()
	backEnd(t, nc, "EDGE", jetstream.ConsumerConfig{Durable: "other", FilterSubject: "edge.*.alarm.>"})
	backEnd(t, nc, "EDGE", jetstream.ConsumerConfig{Durable: "late", DeliverPolicy: jetstream.DeliverNewPolicy})
	c := backEnd(t, nc, "EDGE", jetstream.ConsumerConfig{Durable: "billing", FilterSubject: "edge.press-7.>"})
	first, second := next(t, c), next(t, c)
	if err := first.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	told(t, d.where(r, 1), "consumer", "settled", "billing", "up to at least 1")
	told(t, d.where(r, 2), "consumer", "delivered", "billing", "settled is everything up to 1", "not known")
	got := d.where(r, 3)
	told(t, got, "consumer", "pending", "billing", "delivered up to 2")
	told(t, got, "consumer", "before", "late")
	if len(got.Steps) != 4 {
		t.Errorf("a consumer of other subjects is shown: %+v", got.Steps)
	}
	if err := second.TermWithReason("no such press"); err != nil {
		t.Fatal(err)
	}
	letter := letters(t, r.admin(), 1)[0]
	dead := told(t, d.until(r, 2, admin.TraceDead), "dead", "dead", "billing", "no such press", "terminated")
	if dead.Seq != letter.Seq || dead.Consumer != "billing" {
		t.Errorf("letter %+v, traced %+v", letter, dead)
	}
	if got := d.where(r, 1); got.State != admin.TraceStored {
		t.Errorf("another message of the subject is %s", got.State)
	}
	if _, err := r.admin().RetryDead(t.Context(), admin.DeadChoice{Seqs: []uint64{letter.Seq}}); err != nil {
		t.Fatal(err)
	}
	got = d.until(r, 2, admin.TraceStored)
	told(t, got, "retry", "retried", "billing", "retry 1")
}

func TestTraceOfWhatIsNotUnpacked(t *testing.T) {
	var held atomic.Bool
	held.Store(true)
	cfg := testConfig(t.TempDir())
	cfg.Fault = failing(&held, "unpack:read")
	cfg.Routes = []Route{{Match: "logs.>", Unpack: noUnpack, MaxAge: 48 * time.Hour}, small("sensors.>", "EDGE")}
	r := start(t, cfg)
	d := newDevice(r, "press-7")
	d.open()
	d.send(wire.FrameBlock, d.block("one"))
	d.send(wire.FrameBlock, d.with(func(b *wire.Block) { b.Messages[0].ID = "order-93" }, "two"))
	d.send(wire.FrameBlock, d.of("logs.app", "three"))
	d.send(wire.FrameBlock, d.of("debug.x", "four"))
	d.acked()
	got := d.until(r, 2, admin.TraceWaiting)
	if s := told(t, got, "stream", "waiting", "edge.press-7.sensors.temp"); s.Stream != "EDGE" || got.ID != "order-93" {
		t.Errorf("waiting: %+v", got)
	}
	eventually(t, "why it waits is told", func() bool {
		s := d.where(r, 2).Steps
		return says([]string{s[len(s)-1].Text}, "held up", "injected", "2 blocks behind")
	})
	byID, err := r.admin().TraceID(t.Context(), "press-7", "order-93")
	if err != nil || byID.Seq != 2 || byID.State != admin.TraceWaiting {
		t.Errorf("by id: %+v, %v", byID, err)
	}
	got = d.where(r, 3)
	told(t, got, "route", "packed", "until "+time.Now().UTC().Add(48*time.Hour).Format("2006-"))
	if got.State != admin.TracePacked {
		t.Errorf("state %s", got.State)
	}
	got = d.where(r, 4)
	told(t, got, "route", "unrouted", "backfill")
	if got.State != admin.TraceUnrouted {
		t.Errorf("state %s", got.State)
	}
	held.Store(false)
	d.until(r, 2, admin.TraceStored)
	if byID, err = r.admin().TraceID(t.Context(), "press-7", "order-93"); err != nil || byID.Seq != 2 || byID.State != admin.TraceStored {
		t.Errorf("by id: %+v, %v", byID, err)
	}
}

func TestTraceOfGaps(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	d := newDevice(r, "press-7")
	d.open()
	d.send(wire.FrameBlock, d.with(func(b *wire.Block) {
		b.Blanked = true
		b.Messages[1] = wire.Message{Time: b.Messages[1].Time, Blank: wire.ReasonTTL}
	}, "one", "", "three"))
	d.send(wire.FrameBlock, d.void(4, wire.ReasonDropOldest))
	d.acked()
	for seq, why := range map[uint64]string{2: "ttl", 4: "drop_oldest", 7: "drop_oldest"} {
		d.until(r, seq, admin.TraceGap)
		eventually(t, "it is reported", func() bool {
			s := d.where(r, seq).Steps
			return says([]string{s[len(s)-1].Text}, "reported on dead.gap.press-7", why)
		})
	}
	told(t, d.where(r, 5), "ledger", "gap", "4-7 will not come", "drop_oldest")
	told(t, d.where(r, 2), "device", "gap", "ttl")
	d.until(r, 3, admin.TraceStored)
}

func TestTraceOfADamagedBlock(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	d := newDevice(r, "press-7")
	js, err := r.inside().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.PublishMsg(&nats.Msg{Subject: wire.BlockSubject(d.name, d.flow), Data: []byte("junk"), Header: nats.Header{"Fieldpost-Received": {"1-5"}}}); err != nil {
		t.Fatal(err)
	}
	got := d.until(r, 3, admin.TraceDamaged)
	told(t, got, "ledger", "damaged", "cannot be decoded")
	eventually(t, "its letter is found", func() bool {
		s := d.where(r, 3).Steps
		return s[len(s)-1].Hop == "dead" && s[len(s)-1].Reason == "corrupt"
	})
}

// What has left a stream or the ledger is not taken for something else.
func TestTraceOfWhatIsGone(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	d := newDevice(r, "press-7")
	d.open()
	for i := range 4 {
		d.send(wire.FrameBlock, d.with(func(b *wire.Block) { b.Messages[0].ID = "same" }, fmt.Sprint(i)))
		d.acked()
	}
	r.holds("EDGE", 4)
	js, err := r.inside().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.admin().TraceID(t.Context(), "press-7", "same")
	if err != nil || got.Seq != 4 {
		t.Errorf("by id: %+v, %v", got, err)
	}
	told(t, got, "device", "published", "4 messages with this id", "newest")
	if err := js.PurgeStream("EDGE", &nats.StreamPurgeRequest{Sequence: 3}); err != nil {
		t.Fatal(err)
	}
	told(t, d.until(r, 2, admin.TraceRemoved), "stream", "removed", "unpacked into EDGE", "not there any more")
	d.until(r, 3, admin.TraceStored)
	if err := js.PurgeStream(store.Blocks, &nats.StreamPurgeRequest{Keep: 1}); err != nil {
		t.Fatal(err)
	}
	got = d.until(r, 3, admin.TraceStored)
	told(t, got, "ledger", "received", "left the ledger")
	if s := told(t, got, "stream", "stored"); s.Seq != 3 || s.Block != 3 || got.Subject != "sensors.temp" || got.ID != "same" {
		t.Errorf("found by its number: %+v", got)
	}
	told(t, d.until(r, 1, admin.TraceRemoved), "stream", "removed", "in none")
	got, err = r.admin().TraceID(t.Context(), "press-7", "another")
	if err != nil || got.State != admin.TraceUnknown || got.Epoch != "" || len(got.Searched) != 2 || !got.Searched[0].Complete {
		t.Errorf("an id that nobody gave: %+v, %v", got, err)
	}
	d.send(wire.FrameBlock, d.void(1, wire.ReasonPurge))
	d.acked()
	told(t, d.until(r, 5, admin.TraceGap), "ledger", "gap", "has left the ledger, that holds instead")
}

// A search that may not look at everything begins with the newest and says where
// it ended.
func TestTraceSearchesAreBounded(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	d := newDevice(r, "press-7")
	d.open()
	for i := range 10 {
		d.send(wire.FrameBlock, d.with(func(b *wire.Block) { b.Messages[0].ID = fmt.Sprint("id-", i) }, "x"))
		d.acked()
	}
	r.holds("EDGE", 10)
	p := r.open.Load()
	tr := trace.New(trace.Config{Store: p.store, JetStream: p.js, Unpack: p.unpack, Device: p.registry.Device,
		Streams: []trace.Stream{{Name: "EDGE", Prefix: "edge"}}, Limits: trace.Limits{Messages: 4, Blocks: 2}})
	got, err := tr.ID(t.Context(), "press-7", "id-8")
	if err != nil || got.Seq != 9 || got.State != admin.TraceStored {
		t.Errorf("a new one: %+v, %v", got, err)
	}
	got, err = tr.ID(t.Context(), "press-7", "id-1")
	if err != nil || got.State != admin.TraceUnknown {
		t.Errorf("an old one: %+v, %v", got, err)
	}
	told(t, got, "ledger", "unknown", "older parts were not looked through")
	for _, s := range got.Searched {
		if s.Complete || s.Last != 10 || s.First <= 1 || s.Messages > 4 || uint64(s.Messages) != s.Last+1-s.First {
			t.Errorf("searched %+v", s)
		}
	}
	st, err := p.js.Stream(t.Context(), "EDGE")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := st.Info(t.Context()); err != nil || info.State.Consumers != 0 {
		t.Errorf("searches leave consumers behind: %+v, %v", info, err)
	}
}

func TestTraceWantsOneMessage(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	for _, query := range []string{"", "?id=", "?id=a&seq=1", "?epoch=xyz&lane=normal&seq=1", "?epoch=00000000000000aa&lane=fast&seq=1",
		"?epoch=00000000000000aa&lane=normal&seq=0", "?epoch=00000000000000aa&lane=normal&seq=18446744073709551615"} {
		if code, body := r.get("/v1/devices/press-7/trace" + query); code != 400 || !strings.Contains(body, "bad_request") {
			t.Errorf("%s: %d %s", query, code, body)
		}
	}
	if code, body := r.get("/v1/devices/a.b/trace?id=x"); code != 400 {
		t.Errorf("no device: %d %s", code, body)
	}
}
