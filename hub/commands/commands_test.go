package commands

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

func TestCommandGoesAndItsResultComes(t *testing.T) {
	w := newWorld(t)
	a, b := w.instance(), w.instance()
	wake, err := w.nc.SubscribeSync("fp.wake.press-7")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	sent := w.send(a, "press-7", "c1")
	w.send(a, "press-7", "c2")
	w.send(b, "press-8", "c3")
	if m, err := wake.NextMsg(time.Minute); err != nil || len(m.Data) != 0 {
		t.Errorf("wake: %v %v", m, err)
	}
	if sent.State != wire.CommandPending || sent.Expires.Sub(sent.Sent) != time.Hour {
		t.Errorf("sent: %+v", sent)
	}
	d := w.device("press-7")
	r := d.ask(b)
	if !slices.Equal(d.got, []string{"c1", "c2"}) || string(r.Commands[0].Payload) != "on c1" || r.Commands[0].TTL > 3_600_000 || r.Commands[0].TTL < 3_000_000 || r.More {
		t.Fatalf("reply: %+v", r)
	}
	if got := w.state("press-7", "c1"); got != wire.CommandPending {
		t.Errorf("handed out, not reported: %s", got)
	}
	d.ask(a)
	if got := w.state("press-7", "c1"); got != wire.CommandDelivered {
		t.Errorf("delivered: %s", got)
	}
	d.report("c1", wire.CommandAcked)
	d.report("c2", wire.CommandFailed)
	d.until(b)
	got, err := a.Get(t.Context(), "c1")
	if err != nil || got.State != wire.CommandAcked || string(got.Result) != "result" || got.Deliveries != 1 || got.Delivered.IsZero() || got.Settled.Before(got.Delivered) {
		t.Errorf("acked: %+v, %v", got, err)
	}
	if n := w.left(store.Commands, "fp.cmd.press-7"); n != 0 {
		t.Errorf("%d messages are left", n)
	}
	if n := w.letters("press-7"); n != 1 { // c2
		t.Errorf("%d letters", n)
	}
	if len(d.got) != 2 {
		t.Errorf("came: %v", d.got)
	}
	if n := w.counts[wire.CommandAcked]; n != 1 || w.counts[wire.CommandPending] != 3 || w.counts[wire.CommandDelivered] != 2 || w.counts[wire.CommandFailed] != 1 {
		t.Errorf("counted: %v", w.counts)
	}
}

func TestFinalStatesAreNeverLeft(t *testing.T) {
	w := newWorld(t)
	c := w.instance()
	final := []wire.CommandState{wire.CommandAcked, wire.CommandFailed, wire.CommandExpired, wire.CommandCancelled}
	for i, s := range final {
		id := ids("f", 4)[i]
		w.send(c, "d", id)
		d := w.device("d")
		d.ask(c)
		d.report(id, s)
		d.until(c)
		for _, other := range append(final, wire.CommandDelivered) { // reports that come late, or again
			d.report(id, other)
			d.until(c)
			if got := w.state("d", id); got != s {
				t.Fatalf("%s became %s", s, got)
			}
		}
		if got, err := c.Cancel(t.Context(), id); err != nil || got.State != s {
			t.Errorf("cancelled after %s: %+v, %v", s, got, err)
		}
		w.later(2 * forgotten)
		sweep(t, c)
		w.later(-2 * forgotten)
		if got := w.state("d", id); got != s {
			t.Fatalf("%s became %s", s, got)
		}
	}
	if n := w.letters("d"); n != 2 { // failed, expired
		t.Errorf("%d letters", n)
	}
}

func TestReportsAboutNothingAreDropped(t *testing.T) {
	w := newWorld(t)
	c := w.instance()
	w.send(c, "victim", "v1")
	d := w.device("evil")
	d.report("v1", wire.CommandAcked)
	d.report("nothing", wire.CommandAcked)
	d.until(c)
	if got := w.state("victim", "v1"); got != wire.CommandPending {
		t.Errorf("another device's command: %s", got)
	}
	if got := w.state("evil", "v1") + w.state("evil", "nothing"); got != "" {
		t.Errorf("a report has made a command: %s", got)
	}
	// One that arrives before the record is there is about the message.
	cmd := command{record: record{ID: "lone", Device: "d", Subject: "valve.set"}, payload: []byte("on lone"), ackWait: time.Second, maxDeliver: 3}
	if _, err := w.s.PublishBatch(t.Context(), []store.Msg{cmd.message(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	lone := w.device("d")
	lone.report("lone", wire.CommandAcked)
	lone.until(c)
	if got := w.state("d", "lone"); got != wire.CommandAcked {
		t.Errorf("a message without a record: %s", got)
	}
}

func TestExpiry(t *testing.T) {
	w := newWorld(t)
	c := w.instance()
	w.send(c, "d", "never-asked")
	w.send(c, "offered", "lost-reply")
	w.send(c, "has", "delivered")
	data, err := json.Marshal(w.device("offered").request())
	if err != nil {
		t.Fatal(err)
	}
	c.answer(t.Context(), "offered", data) // and the answer does not arrive
	has := w.device("has")
	has.until(c)
	sweep(t, c)
	w.later(61 * time.Minute)
	sweep(t, c)
	sweep(t, w.instance()) // another one finds nothing to do
	for id, want := range map[string]wire.CommandState{"d/never-asked": wire.CommandExpired, "offered/lost-reply": wire.CommandPending, "has/delivered": wire.CommandDelivered} {
		device, id, _ := strings.Cut(id, "/")
		if got := w.state(device, id); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	// The device shows that it does not have it: now it is over.
	offered := w.device("offered")
	offered.stream = has.stream
	offered.until(c)
	if got := w.state("offered", "lost-reply"); got != wire.CommandExpired || len(offered.got) != 0 {
		t.Errorf("lost-reply is %s, came %v", got, offered.got)
	}
	// It is the device that says so of what it has; if it never does, the hub does.
	w.later(forgotten)
	sweep(t, c)
	got, err := c.Get(t.Context(), "delivered")
	if err != nil || got.State != wire.CommandExpired || !strings.Contains(got.Reason, "may have got it") {
		t.Errorf("delivered: %+v, %v", got, err)
	}
	for _, device := range []string{"d", "offered", "has"} {
		if n, l := w.left(store.Commands, "fp.cmd."+device), w.letters(device); n != 0 || l != 1 {
			t.Errorf("%s: %d messages, %d letters", device, n, l)
		}
	}
	m, err := w.s.Last(t.Context(), store.Dead, "dead.COMMANDS.fp.cmd.d")
	if err != nil || m.Header.Get("Fieldpost-Reason") != "expired" || m.Header.Get(HdrID) != "never-asked" || m.Header.Get(HdrSubject) != "valve.set" || string(m.Data) != "on never-asked" {
		t.Errorf("letter: %+v, %v", m, err)
	}
}

func TestCancel(t *testing.T) {
	w := newWorld(t)
	c := w.instance()
	w.send(c, "d", "waits")
	if got, err := c.Cancel(t.Context(), "waits"); err != nil || got.State != wire.CommandCancelled {
		t.Errorf("pending: %+v, %v", got, err)
	}
	if _, err := c.Cancel(t.Context(), "unknown"); !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown: %v", err)
	}
	w.send(c, "d", "gives-up")
	w.send(c, "d", "done")
	w.send(c, "d", "never-came")
	d := w.device("d")
	d.ask(c)
	d.have = map[string]wire.Command{"gives-up": {}, "done": {}} // never-came was not durable
	d.after--
	for _, id := range []string{"gives-up", "done", "never-came"} {
		if got, err := c.Cancel(t.Context(), id); err != nil || !got.Cancelling || got.State.Settled() {
			t.Errorf("%s: %+v, %v", id, got, err)
		}
	}
	d.reports = nil
	d.report("gives-up", wire.CommandDelivered)
	d.ask(w.instance())
	if slices.Sort(d.cancel); !slices.Equal(d.cancel, []string{"done", "gives-up"}) {
		t.Errorf("to be cancelled: %v", d.cancel)
	}
	if got := w.state("d", "never-came"); got != wire.CommandCancelled {
		t.Errorf("never-came: %s", got)
	}
	d.report("gives-up", wire.CommandCancelled)
	d.report("done", wire.CommandAcked) // it was faster
	d.until(c)
	if a, b := w.state("d", "gives-up"), w.state("d", "done"); a != wire.CommandCancelled || b != wire.CommandAcked {
		t.Errorf("%s, %s", a, b)
	}
	if d.ask(c); len(d.cancel) != 0 || w.left(store.Commands, "fp.cmd.d") != 0 || w.letters("d") != 0 {
		t.Errorf("left: %v, %d messages, %d letters", d.cancel, w.left(store.Commands, "fp.cmd.d"), w.letters("d"))
	}
}

func TestRecreatedStream(t *testing.T) {
	w := newWorld(t)
	c := w.instance()
	for _, id := range ids("old", 3) {
		w.send(c, "d", id)
	}
	d := w.device("d")
	d.ask(c)
	d.reports = nil
	d.report("old0", wire.CommandDelivered)
	d.until(c)
	w.send(c, "d", "unseen")
	if err := w.s.JetStream().DeleteStream(t.Context(), store.Commands); err != nil {
		t.Fatal(err)
	}
	w.ensure()
	c = w.instance()
	w.send(c, "d", "new") // with a sequence that the device has passed
	was := d.stream
	d.report("old0", wire.CommandAcked)
	d.report("old1", wire.CommandFailed)
	d.until(c)
	if d.stream == was || !slices.Contains(d.got, "new") {
		t.Errorf("stream %s, came %v", d.stream, d.got)
	}
	if a, b, n := w.state("d", "old0"), w.state("d", "old1"), w.letters("d"); a != wire.CommandAcked || b != wire.CommandFailed || n != 1 {
		t.Errorf("%s, %s, %d letters", a, b, n)
	}
	if got, err := c.Get(t.Context(), "unseen"); err != nil || got.State != wire.CommandFailed || !strings.Contains(got.Reason, "not in COMMANDS") {
		t.Errorf("a command that nobody can get: %+v, %v", got, err)
	}
}

// An older backup was restored: the device has read further than the stream goes.
func TestStreamThatWentBack(t *testing.T) {
	w := newWorld(t)
	c := w.instance()
	w.send(c, "d", "c1")
	d := w.device("d")
	d.ask(c)
	d.got, d.after = nil, 1000
	if d.ask(c); !slices.Equal(d.got, []string{"c1"}) || d.after != 1 {
		t.Errorf("came %v, after %d", d.got, d.after)
	}
}

func TestBounds(t *testing.T) {
	w := newWorld(t)
	c := w.instance()
	big := strings.Repeat("x", wire.MaxCommand)
	for i := range maxPending {
		payload := []byte("small")
		if i < 5 {
			payload = []byte(big)
		}
		if _, err := c.Send(t.Context(), NewCommand{Device: "d", Subject: "x", Payload: payload}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Send(t.Context(), NewCommand{Device: "d", Subject: "x"}); !errors.Is(err, store.ErrSubjectFull) {
		t.Errorf("beyond max_pending: %v", err)
	}
	w.send(c, "other", "o1")
	d := w.device("d")
	d.room = wire.MaxCommand - 1
	if r := d.ask(c); len(d.got) != 0 || r.More || r.Error != nil {
		t.Errorf("without room: %+v", r)
	}
	d.room = wire.MaxCommand
	if d.ask(c); len(d.got) != 1 {
		t.Errorf("room for one: %d came", len(d.got))
	}
	d.room = 8 << 20
	for d.after < maxPending {
		r := d.ask(c)
		if data, err := json.Marshal(r); err != nil || len(data) > wire.MaxCommandMessage || len(r.Commands) > wire.MaxCommandBatch || r.Error != nil {
			t.Fatalf("%d bytes, %d commands, %v %v", len(data), len(r.Commands), r.Error, err)
		}
	}
	if len(d.got) != maxPending || len(d.have) != maxPending {
		t.Errorf("%d came, %d different", len(d.got), len(d.have))
	}
	d.until(c)
}

func TestHostileRequests(t *testing.T) {
	w := newWorld(t)
	c := w.instance()
	w.send(c, "d", "c1")
	for _, data := range []string{"", "{", "null", strings.Repeat("[", 100_000), `{"hub_id":"hub","room":-1}`, strings.Repeat("x", wire.MaxCommandMessage+1)} {
		if r := c.answer(t.Context(), "d", []byte(data)); r.Error == nil || r.Error.Code != wire.CodeProtocol {
			t.Errorf("%.20q: %+v", data, r)
		}
	}
	if r := c.answer(t.Context(), "d", []byte(`{"hub_id":"another"}`)); r.Error == nil || r.Error.Code != wire.CodeWrongHub {
		t.Errorf("another hub: %+v", r)
	}
	refused := 0
	for range 1000 { // reports of nothing, one request after the other
		if r := c.answer(t.Context(), "flood", []byte(`{"hub_id":"hub","reports":[{"id":"x","state":"acked"}]}`)); r.Error != nil && r.Error.Code == wire.CodeRefused {
			refused++
		}
	}
	if refused == 0 {
		t.Error("a flood is not bounded")
	}
	if d := w.device("d"); d.ask(c).Error != nil || len(d.got) != 1 {
		t.Errorf("the other device: %v", d.got)
	}
}

// Devices that ask over the wire get answers below their own inbox only.
func TestRun(t *testing.T) {
	w := newWorld(t)
	c := w.instance()
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- c.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	w.send(c, "d", "c1")
	data, err := json.Marshal(w.device("d").request())
	if err != nil {
		t.Fatal(err)
	}
	in, err := w.nc.SubscribeSync("_INBOX_d.*")
	if err != nil {
		t.Fatal(err)
	}
	for _, reply := range []string{"_INBOX_other.x", "fp.cmd.d", "_INBOX_d", "_INBOX_d.x"} {
		if err := w.nc.PublishRequest("fp.up.d", reply, data); err != nil {
			t.Fatal(err)
		}
	}
	var m *nats.Msg
	var r *wire.CommandReply
	eventually(t, "an answer", func() bool {
		if err := w.nc.PublishRequest("fp.up.d", "_INBOX_d.x", data); err != nil { // it may not listen yet
			t.Fatal(err)
		}
		if m, err = in.NextMsg(time.Second); err != nil {
			return false
		}
		if r, err = wire.ParseCommandReply(m.Data); err != nil {
			t.Fatal(err)
		}
		return r.Error == nil // else the one before is still being answered
	})
	if m.Subject != "_INBOX_d.x" || len(r.Commands) != 1 {
		t.Errorf("%s %s", m.Subject, m.Data)
	}
	if n := w.left(store.Commands, "fp.cmd.d"); n != 1 {
		t.Errorf("%d messages: an answer went where it must not", n)
	}
}

func TestWait(t *testing.T) {
	w := newWorld(t)
	c := w.instance()
	w.send(c, "d", "c1")
	d := w.device("d")
	d.ask(c)
	type result struct {
		c   admin.Command
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, err := c.Wait(t.Context(), "d", "c1")
		done <- result{out, err}
	}()
	d.report("c1", wire.CommandAcked)
	d.until(w.instance())
	if r := <-done; r.err != nil || r.c.State != wire.CommandAcked {
		t.Errorf("%+v", r)
	}
	w.send(c, "d", "c2")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := c.Wait(ctx, "d", "c2"); err != nil || got.State != wire.CommandPending {
		t.Errorf("given up: %+v, %v", got, err)
	}
}

func TestListAndGroups(t *testing.T) {
	w := newWorld(t)
	c := w.instance()
	for _, d := range []string{"a", "b", "c", "d", "e"} {
		labels := map[string]string{"site": "north", "kind": "press"}
		if d == "c" {
			labels["kind"] = "mill"
		}
		w.devices = append(w.devices, admin.Device{Device: d, Labels: labels})
	}
	n := NewGroup{ID: "g1", Labels: map[string]string{"site": "north", "kind": "press"}, Subject: "valve.set", Payload: []byte("x")}
	// It dies in the middle, and is sent again.
	w.kill("commands:sent", 3)
	if _, err := c.SendGroup(t.Context(), n); !errors.Is(err, errDied) {
		t.Fatalf("died: %v", err)
	}
	w.kill("", 0)
	for range 2 {
		g, err := w.instance().SendGroup(t.Context(), n)
		if err != nil || g.Devices != 4 || g.States[wire.CommandPending] != 4 || !g.Complete {
			t.Fatalf("group: %+v, %v", g, err)
		}
	}
	for _, d := range w.devices {
		want := 1
		if d.Device == "c" {
			want = 0
		}
		if got := w.left(store.Commands, "fp.cmd."+d.Device); got != want {
			t.Errorf("%s has %d commands", d.Device, got)
		}
	}
	if _, err := c.SendGroup(t.Context(), NewGroup{ID: "g1", Labels: n.Labels, Subject: "other"}); !errors.Is(err, ErrDiffers) {
		t.Errorf("another group of the same id: %v", err)
	}
	w.send(c, "a", "own")
	d := w.device("a")
	d.ask(c)
	d.report("own", wire.CommandAcked)
	d.until(c)
	count := func(q Query) (n int) {
		for {
			page, next, err := c.List(t.Context(), q, 2)
			if err != nil {
				t.Fatal(err)
			}
			if n += len(page); next == 0 {
				return n
			}
			q.After = next
		}
	}
	for want, q := range map[int]Query{5: {}, 2: {Device: "a"}, 4: {Group: "g1"}, 1: {State: wire.CommandAcked}, 3: {State: wire.CommandPending}} {
		if got := count(q); got != want {
			t.Errorf("%+v: %d, want %d", q, got, want)
		}
	}
}
