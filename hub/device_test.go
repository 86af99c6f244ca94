package hub

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// fakeDevice speaks the wire protocol by hand.
type fakeDevice struct {
	t       *testing.T
	nc      *nats.Conn
	name    string
	process string
	token   string // made durable
	flow    wire.Flow
	next    uint64 // sequence
	order   string // empty: fifo
	stream  *wire.StreamEncoder

	reply   *wire.OpenReply
	counter uint64
	inbox   *nats.Subscription
}

func newDevice(r *running, name string) *fakeDevice {
	r.t.Helper()
	return newDeviceAt(r.t, r.connect(), name)
}

func newDeviceAt(t *testing.T, nc *nats.Conn, name string) *fakeDevice {
	t.Helper()
	d := &fakeDevice{t: t, nc: nc, name: name, process: "p1", next: 1, flow: wire.Flow{Epoch: wire.NewEpoch(), Lane: wire.Normal}}
	var err error
	if d.inbox, err = d.nc.SubscribeSync(wire.InboxPrefix(name) + ".*"); err != nil {
		t.Fatal(err)
	}
	return d
}

// open opens a session; the token it gets is made durable and confirmed.
func (d *fakeDevice) open() {
	d.t.Helper()
	data, err := json.Marshal(wire.Open{
		Protocol: wire.Protocol, Version: "0.1", Process: d.process, Order: cmp.Or(d.order, "fifo"), Token: d.token,
		Streams: []string{wire.StreamName},
		Flows:   []wire.FlowHeld{{Flow: d.flow, Base: 1, First: 1, Last: max(d.next, 2) - 1}},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	if err := d.nc.PublishRequest(wire.OpenSubject(d.name), wire.InboxPrefix(d.name)+".open", data); err != nil {
		d.t.Fatal(err)
	}
	for {
		m, err := d.inbox.NextMsg(20 * time.Second)
		if err != nil {
			d.t.Fatalf("open: %v", err)
		}
		if !strings.HasSuffix(m.Subject, ".open") {
			continue // the end of an older session
		}
		if d.reply, err = wire.ParseOpenReply(m.Data); err != nil {
			d.t.Fatal(err)
		}
		break
	}
	if d.reply.Error != nil {
		d.t.Fatalf("open: %v", d.reply.Error)
	}
	d.counter = 0
	d.token = d.reply.Token
	d.send(wire.FrameConfirm, []byte(d.token))
}

func (d *fakeDevice) send(t wire.FrameType, body []byte) {
	d.t.Helper()
	d.sendFrame(wire.Frame{Type: t, Body: body})
}

func (d *fakeDevice) sendFrame(f wire.Frame) {
	d.t.Helper()
	d.counter++
	f.Session, f.Counter = wire.SessionID(*d.reply.Session), d.counter
	data := wire.AppendFrame(nil, f)
	if err := d.nc.Publish(wire.FrameSubject(d.reply.Instance, d.name), data); err != nil {
		d.t.Fatal(err)
	}
}

// block encodes the next messages.
func (d *fakeDevice) block(payloads ...string) []byte {
	d.t.Helper()
	data, err := wire.NewEncoder(wire.Fast).Append(nil, d.messages(payloads...))
	if err != nil {
		d.t.Fatal(err)
	}
	return data
}

// messages is the block of the next messages.
func (d *fakeDevice) messages(payloads ...string) *wire.Block {
	now := time.Now().UnixMilli()
	b := &wire.Block{Header: wire.Header{Flow: d.flow, Kind: wire.KindMessages, Base: 1, First: d.next, Accepted: now}}
	for _, p := range payloads {
		b.Messages = append(b.Messages, wire.Message{Subject: "sensors.temp", Payload: []byte(p), Time: now, Headers: []wire.Pair{{Key: "Unit", Value: "C"}}})
	}
	d.next += uint64(len(payloads))
	b.Count = uint64(len(payloads))
	return b
}

// acked waits until everything so far is received.
func (d *fakeDevice) acked() {
	d.t.Helper()
	for {
		m, err := d.inbox.NextMsg(20 * time.Second)
		if err != nil {
			d.t.Fatalf("ack: %v", err)
		}
		if m.Subject != wire.SessionSubject(d.name, wire.SessionID(*d.reply.Session)) {
			continue
		}
		ack, end, err := wire.ParseReply(m.Data)
		if err != nil || end != nil {
			d.t.Fatalf("instead of an ack: %v %v", end, err)
		}
		for _, f := range ack.Flows {
			if f.Flow == d.flow && f.Ranges.Contains(wire.Range{First: 1, Last: d.next - 1}) {
				return
			}
		}
	}
}

// ended waits for the end of the session and returns its code.
func (d *fakeDevice) ended() string {
	d.t.Helper()
	for {
		m, err := d.inbox.NextMsg(20 * time.Second)
		if err != nil {
			d.t.Fatalf("end: %v", err)
		}
		if _, end, err := wire.ParseReply(m.Data); err == nil && end != nil {
			return end.Code
		}
	}
}

func (d *fakeDevice) beat(every int) {
	d.t.Helper()
	data, err := json.Marshal(wire.Heartbeat{
		Version: "0.1", Process: d.process, Epoch: d.flow.Epoch.String(), Every: every, DiskMax: 1000,
		Backlog: map[string]wire.LaneBacklog{"normal": {Messages: 12, Bytes: 345}},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	if err := d.nc.Publish(wire.UpSubject(d.name), data); err != nil {
		d.t.Fatal(err)
	}
}

// edge collects the payloads that EDGE holds of the device, in order.
func edge(t *testing.T, nc *nats.Conn, device string, want int) []string {
	t.Helper()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, fmt.Sprintf("%d messages are in EDGE", want), func() bool {
		info, err := js.StreamInfo("EDGE", &nats.StreamInfoRequest{SubjectsFilter: "edge." + device + ".>"})
		if err != nil {
			return false
		}
		var n uint64
		for _, c := range info.State.Subjects {
			n += c
		}
		return n >= uint64(want)
	})
	s, err := js.SubscribeSync("edge."+device+".>", nats.OrderedConsumer(), nats.BindStream("EDGE"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Unsubscribe()
	var out []string
	for {
		m, err := s.NextMsg(20 * time.Second)
		if err != nil {
			t.Fatalf("after %d messages: %v", len(out), err)
		}
		out = append(out, string(m.Data))
		if meta, err := m.Metadata(); err != nil || meta.NumPending == 0 {
			return out
		}
	}
}

func TestMessageArrivesExactlyOnceAcrossRestarts(t *testing.T) {
	dir := t.TempDir()
	r := start(t, testConfig(dir))
	d := newDevice(r, "press-7")
	d.open()
	first := d.block("one", "two")
	d.send(wire.FrameBlock, first)
	d.acked()
	d.send(wire.FrameBlock, first) // a redelivery
	d.send(wire.FrameBlock, d.block("three"))
	d.acked()
	if got := edge(t, r.connect(), "press-7", 3); strings.Join(got, " ") != "one two three" {
		t.Fatalf("EDGE holds %q", got)
	}

	// Stopping ends the session in words, and loses nothing that was acked.
	r.stop()
	if code := d.ended(); code != wire.CodeStopping {
		t.Errorf("session ended with %s", code)
	}
	old := d
	r = start(t, testConfig(dir))
	d = newDevice(r, "press-7")
	d.flow, d.next, d.token = old.flow, old.next, old.token
	d.open()
	if d.reply.Notice != "" || d.reply.HubID != old.reply.HubID || d.reply.Instance == old.reply.Instance {
		t.Errorf("reply after the restart: %+v", d.reply)
	}
	if len(d.reply.Received) != 1 || d.reply.Received[0].Ranges.String() != "1-3" {
		t.Errorf("received after the restart: %v", d.reply.Received)
	}
	d.send(wire.FrameBlock, first)
	d.send(wire.FrameBlock, d.block("four"))
	d.acked()
	if got := edge(t, r.connect(), "press-7", 4); strings.Join(got, " ") != "one two three four" {
		t.Fatalf("EDGE holds %q", got)
	}
	eventually(t, "status shows no lag", func() bool {
		st, err := r.admin().Status(t.Context())
		return err == nil && st.Routes[0].Lag == 0 && st.Ledger.Seq == 3 && st.Devices.Online == 1
	})
}

func TestDeviceInRegistry(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	c := r.admin()
	d := newDevice(r, "press-7")
	d.open()
	d.beat(600)
	var got admin.Device
	eventually(t, "the heartbeat is shown", func() bool {
		var err error
		got, err = c.Device(t.Context(), "press-7")
		return err == nil && got.Backlog["normal"].Messages == 12
	})
	if !got.Online || got.Version != "0.1" || got.Epoch != d.flow.Epoch.String() || got.Instance != r.instance || got.Clones != nil {
		t.Errorf("device: %+v", got)
	}

	// A copy beside its original works, and is reported.
	clone := newDevice(r, "press-7")
	clone.process = "p2"
	clone.open()
	if clone.reply.Notice != "clone_or_restored_copy" {
		t.Errorf("notice %q", clone.reply.Notice)
	}
	clone.send(wire.FrameBlock, clone.block("from the clone"))
	clone.acked()
	d.send(wire.FrameBlock, d.block("from the original"))
	d.acked()
	eventually(t, "the report is shown", func() bool {
		page, err := c.Devices(t.Context(), admin.DeviceQuery{Filter: "state=cloned"})
		return err == nil && page.Total == 1 && page.Devices[0].Clones.Reports == 1
	})

	// One says bye, the other's connection is cut.
	clone.send(wire.FrameBye, nil)
	if err := clone.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	d.nc.Close()
	clone.nc.Close()
	eventually(t, "the device is offline long before its heartbeat is due", func() bool {
		got, err := c.Device(t.Context(), "press-7")
		return err == nil && !got.Online
	})
	if code, body := r.get("/metrics"); code != 200 || !strings.Contains(body, `fieldpost_hub_devices{state="offline"} 1`) {
		t.Errorf("metrics do not show it: %d", code)
	}
}

func TestForgetDevice(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	c := r.admin()
	code := func(err error) string {
		var p *admin.Problem
		if errors.As(err, &p) {
			return p.Code
		}
		return fmt.Sprint(err)
	}
	if got := code(c.Forget(t.Context(), "press-7")); got != "not_found" {
		t.Errorf("a device that nobody knows: %s", got)
	}
	d := newDevice(r, "press-7")
	d.open()
	d.send(wire.FrameBlock, d.block("one"))
	d.acked()
	if got := code(c.Forget(t.Context(), "press-7")); got != "online" {
		t.Errorf("a device that is online: %s", got)
	}
	d.send(wire.FrameBye, nil)
	eventually(t, "it is forgotten", func() bool { return c.Forget(t.Context(), "press-7") == nil })
	if _, err := c.Device(t.Context(), "press-7"); code(err) != "not_found" {
		t.Errorf("after it was forgotten: %v", err)
	}
	d.open() // back again, where it was
	if got := d.reply.Received; len(got) != 1 || got[0].Ranges.String() != "1-1" {
		t.Errorf("received: %v", got)
	}
	eventually(t, "it is known again, and written down", func() bool {
		_, err := r.open.Load().store.Last(t.Context(), "KV_fieldpost_devices", "$KV.fieldpost_devices.press-7")
		got, e := c.Device(t.Context(), "press-7")
		return err == nil && e == nil && got.Online
	})
}

func TestHostileDevices(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	nc := r.connect()
	for _, data := range []string{"", "{", strings.Repeat("[", 100_000), `{"every":-5}`, "\x00\xff"} {
		for _, subject := range []string{"fp.up.evil", "fp.open.evil", "fp.in." + r.instance + ".evil", "fp.up.a*b"} {
			if strings.Contains(subject, "*") {
				continue
			}
			m := &nats.Msg{Subject: subject, Reply: "_INBOX_other.s1", Data: []byte(data)}
			if subject == "fp.up.evil" {
				m.Reply = "" // a heartbeat
			}
			if err := nc.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	d := newDevice(r, "good")
	d.open()
	d.send(wire.FrameBlock, d.block("x"))
	d.acked()
	defer func() {
		if _, body := r.get("/metrics"); t.Failed() {
			t.Log(body)
		}
	}()
	eventually(t, "refusals are counted", func() bool {
		_, body := r.get("/metrics")
		return strings.Contains(body, `fieldpost_hub_rejected_total{reason="heartbeat_invalid"} 5`) &&
			strings.Contains(body, `fieldpost_hub_rejected_total{reason="bad_reply"} 5`)
	})
	if page, err := r.admin().Devices(t.Context(), admin.DeviceQuery{}); err != nil || page.Total != 1 {
		t.Errorf("devices: %+v %v", page, err)
	}
}
