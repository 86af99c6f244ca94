package ingest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// file is a portable file of what src holds, from the sequence from on.
func file(t testing.TB, src *source, device, hub string, from uint64) []byte {
	t.Helper()
	var out bytes.Buffer
	flows := slices.DeleteFunc(src.Flows(), func(f wire.FlowHeld) bool { return f.Last < from })
	for i := range flows {
		flows[i].First = from
	}
	x, err := wire.NewExportWriter(&out, wire.ExportHead{Device: device, HubID: hub, Created: 1, Flows: flows})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range flows {
		for at := from; ; {
			data, err := src.Read(f.Flow, at)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			h, err := wire.ParseHeader(data)
			if err != nil {
				t.Fatal(err)
			}
			if err := x.Block(data); err != nil {
				t.Fatal(err)
			}
			at = h.Last() + 1
		}
	}
	if err := x.End(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func importInto(in *Ingest, data []byte, force bool) (admin.Imported, error) {
	x, err := wire.NewExportReader(bytes.NewReader(data))
	if err != nil {
		return admin.Imported{}, err
	}
	return in.Import(context.Background(), x, force)
}

func wantCode(t *testing.T, err error, code, text string) {
	t.Helper()
	var ie *ImportError
	if !errors.As(err, &ie) || ie.Code != code || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %s with %q", err, code, text)
	}
}

func twoEpochs() map[wire.Flow]uint64 {
	return map[wire.Flow]uint64{flow(1, wire.Normal): 100, flow(2, wire.Normal): 50, flow(1, wire.Urgent): 20, flow(2, wire.Bulk): 7}
}

func TestImport(t *testing.T) {
	st, reg, c := newFakeStore(), &fakeRegistry{}, &counts{}
	in := start(t, Config{Conn: connect(t, startNATS(t)), Store: st, Registry: reg, Hooks: c.hooks()})
	flows := twoEpochs()
	data := file(t, newSource(t, 10, flows), "cam-1", "hub1", 1)

	out, err := importInto(in.Ingest, data, false)
	if err != nil || out.Stored.Messages != 177 || out.Already.Messages != 0 || out.File.Messages != 177 || out.Device != "cam-1" {
		t.Fatalf("%+v, %v", out, err)
	}
	checkLedger(t, st.stored(), flows)
	n := len(st.stored())
	out, err = importInto(in.Ingest, data, false)
	if err != nil || out.Stored.Messages != 0 || out.Already.Messages != 177 || len(st.stored()) != n {
		t.Errorf("again: %+v, %v; %d blocks more", out, err, len(st.stored())-n)
	}

	// What the device has published since follows, over the link and by a newer file.
	for f := range flows {
		flows[f] += 13
	}
	newer := file(t, newSource(t, 7, flows), "cam-1", "", 90)
	if out, err := importInto(in.Ingest, newer, false); err != nil || out.Stored.Messages != 13 {
		t.Errorf("a newer file: %+v, %v", out, err)
	}
	runUplink(t, in.cfg.Conn.ConnectedUrl(), "cam-1", flows)
	checkLedger(t, st.stored(), flows)
	if reg.get("opened cam-1 p") == 0 || len(reg.n) > 3 {
		t.Errorf("the registry heard of %v", reg.n)
	}
}

func TestImportOfWhatIsPartlyThere(t *testing.T) {
	st := newFakeStore()
	in := start(t, Config{Conn: connect(t, startNATS(t)), Store: st})
	f := flow(1, wire.Normal)
	cl := dial(t, connect(t, in.cfg.Conn.ConnectedUrl()), "cam-1", wire.FlowHeld{Flow: f, Base: 1, First: 1, Last: 30})
	cl.send(wire.FrameBlock, block(t, wire.NewEncoder(wire.Fast), f, 1, 15, 60))
	cl.acked(f, 15)
	flows := map[wire.Flow]uint64{f: 40}
	out, err := importInto(in.Ingest, file(t, newSource(t, 10, flows), "cam-1", "", 1), false)
	if err != nil || out.Recut != 1 || out.Already.Messages != 15 || out.Stored.Messages != 25 {
		t.Errorf("%+v, %v", out, err)
	}
	checkLedger(t, st.stored(), flows)
	cl.acked(f, 40) // its session is told
}

func TestImportRefuses(t *testing.T) {
	st := newFakeStore()
	in := start(t, Config{Conn: connect(t, startNATS(t)), Store: st})
	f := flow(1, wire.Normal)
	src := newSource(t, 10, map[wire.Flow]uint64{f: 100})

	_, err := importInto(in.Ingest, file(t, src, "cam-1", "hub2", 1), false)
	wantCode(t, err, ImportWrongHub, "belongs to hub hub2 and this is hub1")
	out, err := importInto(in.Ingest, file(t, src, "cam-1", "", 51), false)
	wantCode(t, err, ImportHole, "51-60 cannot follow, because 1-50 is missing")
	if n := len(st.stored()); n > 0 || out.Stored.Messages > 0 {
		t.Fatalf("%d blocks are stored", n)
	}
	data := file(t, src, "cam-1", "", 1)
	for _, n := range []int{len(data) / 2, len(data) - 1} {
		out, err = importInto(in.Ingest, data[:n], false)
		wantCode(t, err, ImportBadFile, "cut off")
		if n := uint64(len(st.stored())); out.Stored.Messages+out.Already.Messages != n*10 || n == 0 {
			t.Errorf("%d blocks are stored; %+v", n, out)
		}
	}
	data[len(data)-40] ^= 1
	_, err = importInto(in.Ingest, data, false)
	wantCode(t, err, ImportBadFile, "corrupt")
	checkLedger(t, st.stored(), map[wire.Flow]uint64{f: 100})

	out, err = importInto(in.Ingest, file(t, src, "cam-3", "hub2", 1), true)
	if err != nil || out.Stored.Messages != 100 {
		t.Errorf("forced: %+v, %v", out, err)
	}
}

// TestImportSplits: a block that is larger than the hub's largest message.
func TestImportSplits(t *testing.T) {
	st := newFakeStore()
	in := start(t, Config{Conn: connect(t, startNATS(t)), Store: st, MaxPayload: 2 * headroom})
	flows := map[wire.Flow]uint64{flow(1, wire.Normal): 2400}
	src := newSource(t, 1200, flows)
	if b, _ := src.Read(flow(1, wire.Normal), 1); len(b) < 2*headroom {
		t.Fatalf("a block has only %d bytes", len(b))
	}
	if out, err := importInto(in.Ingest, file(t, src, "cam-1", "", 1), false); err != nil || out.Stored.Messages != 2400 {
		t.Fatalf("%+v, %v", out, err)
	}
	checkLedger(t, st.stored(), flows)
}

// TestImportMeetsTheDevice: two imports of different age and the device itself
// send the same at the same time, while the ledger fails now and then.
func TestImportMeetsTheDevice(t *testing.T) {
	st := newFakeStore()
	st.fail = func(n int) error {
		switch {
		case n%7 == 3:
			return store.ErrGuard
		case n%11 == 5:
			return store.ErrUnknownOutcome
		}
		return nil
	}
	in := start(t, Config{Conn: connect(t, startNATS(t)), Store: st})
	flows := map[wire.Flow]uint64{flow(1, wire.Normal): 900, flow(2, wire.Normal): 700, flow(2, wire.Bulk): 300}
	old := map[wire.Flow]uint64{flow(1, wire.Normal): 900, flow(2, wire.Normal): 123}
	files := [][]byte{
		file(t, newSource(t, 10, old), "cam-1", "", 1),
		file(t, newSource(t, 10, flows), "cam-1", "hub1", 1),
		file(t, newSource(t, 13, flows), "cam-1", "", 1),
	}
	src := newSource(t, 7, flows)
	startUplink(t, []string{in.cfg.Conn.ConnectedUrl()}, "cam-1", "p", src, 0)
	var work sync.WaitGroup
	for _, data := range files {
		work.Go(func() {
			if _, err := importInto(in.Ingest, data, false); err != nil {
				t.Errorf("import: %v", err)
			}
		})
	}
	work.Wait()
	src.wait(t)
	checkLedger(t, st.stored(), flows)
}

func TestImportEndsWithTheHub(t *testing.T) {
	st := newFakeStore()
	st.pause = make(chan struct{})
	defer close(st.pause)
	committing := make(chan struct{}, 10)
	fault := func(point string) error {
		if point == "commit:publish" {
			committing <- struct{}{}
		}
		return nil
	}
	in := start(t, Config{Conn: connect(t, startNATS(t)), Store: st, StopTimeout: 10 * time.Millisecond, Fault: fault})
	data := file(t, newSource(t, 10, map[wire.Flow]uint64{flow(1, wire.Normal): 100}), "cam-1", "", 1)
	done := make(chan error)
	go func() { _, err := importInto(in.Ingest, data, false); done <- err }()
	<-committing
	in.stop(t)
	wantCode(t, <-done, ImportStopping, "stopping")
	_, err := importInto(in.Ingest, data, false)
	wantCode(t, err, ImportStopping, "stopping")

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	x, err := wire.NewExportReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Import(ctx, x, false); err == nil {
		t.Error("cancelled, and no error")
	}
}
