package ingest

import (
	"fmt"
	"testing"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestStreamIsStoredAsBlocks: what comes through a session's stream is in the
// ledger as blocks of format 1, which say where newer messages went ahead.
func TestStreamIsStoredAsBlocks(t *testing.T) {
	url := startNATS(t)
	st := newFakeStore()
	start(t, Config{Conn: connect(t, url), Store: st})
	f := flow(1, wire.Normal)
	cl := &client{t: t, nc: connect(t, url), device: "cam-1"}
	cl.reply = cl.open(wire.Open{
		Protocol: wire.Protocol, Process: "p", Order: "fresh-first", Streams: []string{"later-7", wire.StreamName},
		Flows: []wire.FlowHeld{{Flow: f, Base: 1, First: 1, Last: 20}},
	})
	if cl.reply.Error != nil || cl.reply.Stream != wire.StreamName {
		t.Fatalf("the hub does not agree to %s: %+v", wire.StreamName, cl.reply)
	}
	var err error
	if cl.sub, err = cl.nc.SubscribeSync(wire.SessionSubject("cam-1", wire.SessionID(*cl.reply.Session))); err != nil {
		t.Fatal(err)
	}
	enc, plain, dec := wire.NewStreamEncoder(), wire.NewEncoder(wire.Fast), wire.NewDecoder()
	for _, p := range []struct {
		first, last      uint64
		backfill, stream bool
	}{{21, 23, false, true}, {1, 9, true, true}, {24, 24, false, false}, {10, 20, true, false}, {25, 26, false, true}} {
		body, typ := block(t, plain, f, p.first, p.last, 80), wire.FrameBlock
		if p.stream {
			b, err := dec.Decode(body, true)
			if err == nil {
				body, err = enc.Append(nil, b)
			}
			if err != nil {
				t.Fatal(err)
			}
			typ = wire.FrameStream
		}
		cl.counter++
		data := wire.AppendFrame(nil, wire.Frame{
			Type: typ, Session: wire.SessionID(*cl.reply.Session), Counter: cl.counter, Body: body, Backfill: p.backfill,
		})
		if err := cl.nc.Publish(wire.FrameSubject(cl.reply.Instance, "cam-1"), data); err != nil {
			t.Fatal(err)
		}
	}
	cl.acked(f, 26)

	msgs := st.stored()
	var got []string
	for _, m := range msgs {
		if m.Data[0] == 0 || m.Data[3] != wire.Version {
			t.Errorf("message %d begins with % x: no block of format %d", m.Seq, m.Data[:4], wire.Version)
		}
		b, err := dec.Decode(m.Data, false)
		if err != nil {
			t.Fatalf("message %d: %v", m.Seq, err)
		}
		for i := range b.Messages {
			if want := string(payload(f, b.First+uint64(i), 80)); string(b.Messages[i].Payload) != want || b.Messages[i].Subject != "s.t" {
				t.Errorf("message %d: %d is %q on %s", m.Seq, b.First+uint64(i), b.Messages[i].Payload, b.Messages[i].Subject)
			}
		}
		got = append(got, fmt.Sprintf("%s backfill=%s received=%s", b.Range(), m.Header.Get(hdrBackfill), m.Header.Get(hdrReceived)))
	}
	want := []string{
		"21-23 backfill= received=21-23", "1-9 backfill=1 received=1-9,21-23", "24-24 backfill= received=1-9,21-24",
		"10-20 backfill=1 received=1-24", "25-26 backfill= received=1-26",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the ledger holds\n%q, want\n%q", got, want)
	}
}

// TestStreamThatCannotBeRead ends its session and stores nothing.
func TestStreamThatCannotBeRead(t *testing.T) {
	url := startNATS(t)
	st := newFakeStore()
	start(t, Config{Conn: connect(t, url), Store: st})
	cl := dial(t, connect(t, url), "cam-1", wire.FlowHeld{Flow: flow(1, wire.Normal), Base: 1, First: 1, Last: 9})
	cl.send(wire.FrameStream, []byte("no stream at all"))
	// By what its first bits happen to say, it is harmed or of a later version.
	if err := cl.ended(); err.Code != wire.CodeCorrupt && err.Code != wire.CodeProtocol {
		t.Errorf("the session ends with %v", err)
	}
	if n := len(st.stored()); n > 0 {
		t.Errorf("%d blocks are stored", n)
	}
}
