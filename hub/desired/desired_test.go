package desired

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

func TestLastWriterWinsPerMember(t *testing.T) {
	w := newWorld(t)
	a, b := w.instance(), w.instance()
	w.device("press-7", "site=north kind=press")
	w.device("press-8", "site=south")
	d := w.agent("press-7")
	if d.ask(a) {
		t.Errorf("nothing is set: %s", d.doc)
	}
	w.set(a, "press-7", `{"x":1,"own":true}`, b)
	w.set(b, "site=north", `{"x":2,"y":{"p":1,"q":1}}`, a)
	w.set(a, "kind=press", `{"y":{"q":2}}`, b)
	w.set(a, "kind=lathe", `{"z":1}`, b)
	d.wants(b, `{"own":true,"x":2,"y":{"p":1,"q":2}}`)
	if d.ask(a) || d.ask(b) {
		t.Error("it has that already")
	}
	w.set(b, "press-7", `{"x":3,"y":{"p":null}}`, a)
	d.wants(a, `{"x":3,"y":{"q":2}}`)
	w.change(a, Change{Target: target("press-7"), Document: []byte(`{"x":null,"w":1}`), Merge: true}, b)
	d.wants(b, `{"w":1,"x":2,"y":{"q":2}}`)
	w.remove(a, "press-7", b)
	d.wants(b, `{"x":2,"y":{"p":1,"q":2}}`)
	w.remove(b, "site=north", a)
	w.remove(b, "kind=press", a)
	d.wants(a, `{}`)
	if d.ask(b) {
		t.Error("{} twice")
	}
	if got, err := a.Device(t.Context(), "press-7"); err != nil || got.State != admin.DesiredNone || string(got.Merged) != "{}" {
		t.Errorf("%+v %v", got, err)
	}
	if e := w.agent("press-8"); e.ask(a) {
		t.Errorf("of another site: %s", e.doc)
	}
}

func TestSameSettingsAreSentAgainOnlyAfterARefusal(t *testing.T) {
	w := newWorld(t)
	d := w.instance()
	w.device("x", "")
	a := w.agent("x")
	w.set(d, "x", `{"a":1}`)
	a.ask(d)
	state := func(want admin.DesiredState, reason string) {
		t.Helper()
		if a.ask(d) {
			t.Error("it was sent again")
		}
		if got, err := d.Device(t.Context(), "x"); err != nil || got.State != want || got.Reason != reason {
			t.Errorf("%+v %v", got, err)
		}
	}
	state(admin.DesiredApplied, "")
	w.set(d, "x", `{ "a": 1 }`)
	state(admin.DesiredApplied, "")
	a.rep.State = wire.DesiredTrial
	state(admin.DesiredTrial, "")
	w.set(d, "x", `{"a":1}`)
	state(admin.DesiredTrial, "")
	a.rep.State, a.rep.Reason = wire.DesiredRefused, "no link"
	if !a.ask(d) {
		t.Error("it was written again since, and is to be tried again")
	}
	a.rep.State, a.rep.Reason = wire.DesiredRefused, "no link"
	state(admin.DesiredRefused, "no link")
}

func TestRevisionsGuard(t *testing.T) {
	w := newWorld(t)
	a, b := w.instance(), w.instance()
	first := w.set(a, "x", `{"a":1}`, b)
	if first.By != "tester" || first.Device != "x" || first.Revision == 0 || time.Since(first.At) > time.Hour {
		t.Errorf("%+v", first)
	}
	try := func(of string, rev uint64, remove bool) error {
		_, err := b.Set(t.Context(), Change{Target: target(of), Document: []byte(`{}`), Remove: remove, Revision: &rev})
		return err
	}
	for _, err := range []error{try("x", 0, false), try("x", first.Revision+1, false), try("y", 3, false), try("x", 0, true)} {
		if !errors.Is(err, ErrChanged) {
			t.Errorf("%v", err)
		}
	}
	if err := try("x", first.Revision, true); err != nil {
		t.Error(err)
	}
	if _, err := b.Set(t.Context(), Change{Target: target("x"), Remove: true}); !errors.Is(err, ErrNone) {
		t.Errorf("removed twice: %v", err)
	}
	if err := errors.Join(try("x", 0, false), try("y", 0, false)); err != nil {
		t.Error(err)
	}
	w.set(a, "n", `{"n":0}`, b)
	var work sync.WaitGroup // every one of them is made of the one before
	for i := range 20 {
		d := []*Desired{a, b}[i%2]
		work.Go(func() {
			if _, err := d.Set(t.Context(), Change{Target: target("n"), Document: fmt.Appendf(nil, `{"m%d":1}`, i), Merge: true}); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	got, err := a.Device(t.Context(), "n")
	for end := time.Now().Add(time.Minute); err == nil && len(mustParse(t, string(got.Merged))) != 21 && time.Now().Before(end); {
		got, err = a.Device(t.Context(), "n")
	}
	if n := len(mustParse(t, string(got.Merged))); n != 21 || err != nil {
		t.Errorf("%d members, want 21: %v", n, err)
	}
}

func TestLimits(t *testing.T) {
	w := newWorld(t)
	d := w.instance(func(c *Config) { c.MaxDocuments, c.MaxBytes = 3, 2*wire.MaxDesired })
	w.device("x", "site=north")
	set := func(of, doc string) error {
		_, err := d.Set(t.Context(), Change{Target: target(of), Document: []byte(doc)})
		return err
	}
	big := func(name string, n int) string { return `{"` + name + `":"` + strings.Repeat("x", n) + `"}` }
	if err := set("x", big("a", wire.MaxDesired)); !errors.Is(err, ErrLarge) {
		t.Errorf("one too large: %v", err)
	}
	if err := set("x", `{"a":"`+strings.Repeat("<", wire.MaxDesired/5)+`"}`); !errors.Is(err, ErrLarge) {
		t.Errorf("too large on the wire: %v", err)
	}
	if err := set("x", big("a", 40<<10)); err != nil {
		t.Fatal(err)
	}
	if err := set("site=north", big("b", 40<<10)); !errors.Is(err, ErrLarge) || !strings.Contains(err.Error(), "wanted of x") {
		t.Errorf("too large together: %v", err)
	}
	if err := set("site=south", big("b", 40<<10)); err != nil {
		t.Fatal(err)
	}
	a := w.agent("x")
	a.ask(d)
	had := a.doc
	w.device("x", "site=south") // now it is
	if a.ask(d); a.doc != had {
		t.Error("too much was sent")
	}
	if got, err := d.Device(t.Context(), "x"); err != nil || got.State != admin.DesiredTooLarge || got.Reason == "" || string(got.Merged) != "null" {
		t.Errorf("%+v %v", got.State, err)
	}
	if err := set("y", big("c", 60<<10)); !errors.Is(err, ErrFull) {
		t.Errorf("too many bytes: %v", err)
	}
	if err := errors.Join(set("y", `{}`), set("y", `{"a":1}`)); err != nil {
		t.Error(err)
	}
	if err := set("z", `{}`); !errors.Is(err, ErrFull) {
		t.Errorf("too many: %v", err)
	}
	w.remove(d, "y")
	if err := set("z", `{}`); err != nil {
		t.Error(err)
	}
}

func TestNothingIsSentBeforeLabelsAreKnown(t *testing.T) {
	w := newWorld(t)
	d := w.instance()
	w.set(d, "x", `{"a":1}`, d)
	w.set(d, "site=north", `{"b":1}`, d)
	a := w.agent("x")
	if a.ask(d) {
		t.Errorf("unknown: %s", a.doc)
	}
	w.mu.Lock()
	w.devices["x"] = admin.Device{Device: "x", Online: true} // of a session without a heartbeat
	w.mu.Unlock()
	if a.ask(d) {
		t.Errorf("not heard of: %s", a.doc)
	}
	wake := w.wakes("x")
	d.Around("x", func() { w.device("x", "site=north") })
	wake()
	a.wants(d, `{"a":1,"b":1}`)
	d.Around("x", func() { w.device("x", "site=south") })
	wake()
	a.wants(d, `{"a":1}`)
	d.Around("x", func() { w.device("x", "site=north") })
	wake()
	a.wants(d, `{"a":1,"b":1}`)
	d.Around("x", func() { w.device("x", "site=north colour=red") }) // nothing is set for that
	d.Around("x", func() { w.device("x", "") })
	wake()
	if a.wants(d, `{"a":1}`); w.pending != 0 {
		t.Errorf("%d wakes too many", w.pending)
	}
}

// wakes returns what waits for the next wake of a device.
func (w *world) wakes(device string) (next func()) {
	w.t.Helper()
	sub, err := w.nc.SubscribeSync("fp.wake." + device)
	if err == nil {
		err = w.nc.Flush()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return func() {
		w.t.Helper()
		if _, err := sub.NextMsg(time.Minute); err != nil {
			w.t.Fatalf("%s is not woken: %v", device, err)
		}
		n, _, err := sub.Pending()
		if err != nil {
			w.t.Fatal(err)
		}
		w.pending = n
	}
}

func TestEveryInstanceWakesWhoIsOnline(t *testing.T) {
	w := newWorld(t)
	var died atomic.Bool // the first instance, between the write and everything after it
	a := w.instance(func(c *Config) {
		c.Fault = func(p string) error {
			if p == "desired:wake" || p == "desired:stored" && died.Swap(true) {
				return errDied
			}
			return nil
		}
	})
	died.Store(true)
	b := w.instance()
	w.device("x", "site=north")
	w.device("y", "site=north")
	w.mu.Lock()
	off := w.devices["y"]
	off.Online = false
	w.devices["y"] = off
	w.mu.Unlock()
	wakeX, offline := w.wakes("x"), make(chan *nats.Msg, 1)
	sub, err := w.nc.ChanSubscribe("fp.wake.y", offline)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	_, err = a.Set(t.Context(), Change{Target: target("site=north"), Document: []byte(`{"a":1}`)})
	if !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	wakeX()
	x := w.agent("x")
	x.wants(b, `{"a":1}`)
	w.set(b, "x", `{"b":1}`)
	wakeX()
	if len(offline) != 0 {
		t.Error("a device that is away was woken")
	}
	// One that starts after the death knows all of it.
	w.agent("y").wants(w.instance(), `{"a":1}`)
}

// An instance that has not read what another one gave out gives out nothing.
func TestAnInstanceThatLagsDoesNotGoBack(t *testing.T) {
	w := newWorld(t)
	w.device("x", "")
	a := w.instance()
	w.set(a, "x", `{"a":1}`)
	b := w.instance()
	x := w.agent("x")
	x.wants(b, `{"a":1}`)
	b.mu.Lock() // as if it had stopped reading here
	stale, seen := b.table.docs["doc.device.x"], b.seen
	b.mu.Unlock()
	w.set(a, "x", `{"a":2}`, a, b)
	x.wants(a, `{"a":2}`)
	b.mu.Lock()
	b.table.docs["doc.device.x"], b.seen = stale, seen
	b.mu.Unlock()
	if x.ask(b) {
		t.Errorf("it went back to %s", x.doc)
	}
	wake := w.wakes("x") // by the one that could not answer, when it has read on
	w.set(a, "other", `{}`, a, b)
	wake()
}

func TestABucketThatSomebodyDeletes(t *testing.T) {
	w := newWorld(t)
	w.device("x", "")
	d := w.instance()
	w.set(d, "y", `{}`)
	w.set(d, "x", `{"a":1}`)
	x := w.agent("x")
	x.ask(d)
	if err := w.s.JetStream().DeleteStream(t.Context(), store.DesiredIndex); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is noticed", func() bool { return d.Err() != nil && d.ready() != nil })
	if got, _ := d.Answer(t.Context(), "x", &wire.DesiredReport{}); got != nil {
		t.Errorf("nobody knows what is wanted, and it gets %s", got.Document)
	}
	if _, err := d.Set(t.Context(), Change{Target: target("x"), Document: []byte(`{}`)}); err == nil {
		t.Error("it was set")
	}
	wake := w.wakes("x")
	w.ensure()
	eventually(t, "it is read again", func() bool { return d.Err() == nil && d.ready() == nil })
	wake()
	x.wants(d, `{}`)
	w.set(d, "x", `{"a":2}`)
	x.wants(d, `{"a":2}`)
}

func TestHostileReports(t *testing.T) {
	w := newWorld(t)
	w.device("x", "")
	d := w.instance()
	for i := range 3 * reportBurst {
		rep := wire.DesiredReport{Version: fmt.Sprintf("18446744073709551615-%d", i), State: wire.DesiredRefused, Reason: strings.Repeat("x", 255)}
		if got, err := d.Answer(t.Context(), "x", &rep); err != nil || got == nil || string(got.Document) != "{}" {
			t.Fatalf("%+v %v", got, err)
		}
		if _, err := d.Answer(t.Context(), fmt.Sprintf("nobody-%d", i), &rep); err != nil {
			t.Fatal(err)
		}
	}
	info, err := w.s.Info(t.Context(), store.DesiredIndex)
	if err != nil || info.Messages != 1 || info.Last > reportBurst+2 {
		t.Errorf("%+v %v", info, err)
	}
	if n := w.hidden["desired_reports"]; n < reportBurst {
		t.Errorf("%d were refused", n)
	}
	same := wire.DesiredReport{Version: "1-a", State: wire.DesiredApplied}
	w.device("z", "")
	for i := range int64(10) { // the same, with other times
		same.At = i
		if _, err := d.Answer(t.Context(), "z", &same); err != nil {
			t.Fatal(err)
		}
	}
	if after, err := w.s.Info(t.Context(), store.DesiredIndex); err != nil || after.Last != info.Last+1 {
		t.Errorf("written %d times: %v", after.Last-info.Last, err)
	}
	if err := d.Forget(t.Context(), "z"); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Device(t.Context(), "z"); err != nil || got.Report != nil {
		t.Errorf("forgotten: %+v %v", got, err)
	}
}

func TestEntriesThatNobodyCanReadArePassedOver(t *testing.T) {
	w := newWorld(t)
	w.device("x", "site=north")
	d := w.instance()
	for key, value := range map[string]string{"doc.device.x": "no", "doc.label.x.y": "{}", "doc.what": "{}", "report.x": "["} {
		if _, err := w.s.PublishBatch(t.Context(), []store.Msg{{Subject: subjectPrefix + key, Data: []byte(value)}}); err != nil {
			t.Fatal(err)
		}
	}
	w.set(d, "site=north", `{"a":1}`, d)
	for _, i := range []*Desired{d, w.instance()} {
		x := w.agent("x")
		x.wants(i, `{"a":1}`)
		x.ask(i)
	}
	w.set(d, "x", `{"b":1}`, d)
	w.agent("x").wants(d, `{"a":1,"b":1}`)
}

func TestSummaryAndPages(t *testing.T) {
	w := newWorld(t)
	d := w.instance()
	for i := range 5 {
		w.device(key(i), "site=north")
	}
	w.device("other", "site=south")
	w.set(d, "site=north", `{"a":1}`)
	w.set(d, key(4), `{"b":"<"}`)
	for i, s := range []wire.DesiredState{wire.DesiredApplied, wire.DesiredRefused, wire.DesiredTrial, "", wire.DesiredApplied} {
		if a := w.agent(key(i)); s != "" {
			a.ask(d)
			a.rep.State = s
			if s == wire.DesiredRefused {
				a.rep.Reason = "no"
			}
			a.ask(d)
		}
	}
	got, err := d.Label(t.Context(), target("site=north"))
	want := map[admin.DesiredState]int{admin.DesiredApplied: 2, admin.DesiredRefused: 1, admin.DesiredTrial: 1, admin.DesiredNotYet: 1}
	if err != nil || got.Devices != 5 || fmt.Sprint(got.States) != fmt.Sprint(want) || got.Refused[key(1)] != "no" || got.Document == nil {
		t.Errorf("%+v %v", got, err)
	}
	if one, err := d.Device(t.Context(), key(4)); err != nil || string(one.Merged) != `{"a":1,"b":"<"}` || len(one.Documents) != 2 || one.Report == nil {
		t.Errorf("%+v %v", one, err)
	}
	var all []string
	for after := ""; ; {
		page, next, err := d.List(after, 1)
		if err != nil || len(page) != 1 || page[0].Document != nil {
			t.Fatalf("%+v %v", page, err)
		}
		all = append(all, page[0].Device+page[0].Label)
		if after = next; next == "" {
			break
		}
	}
	if fmt.Sprint(all) != fmt.Sprint([]string{key(4), "site=north"}) {
		t.Errorf("%v", all)
	}
}

// A write whose answer was lost is not made twice, and not refused as another's.
func TestALostAnswer(t *testing.T) {
	w := newWorld(t)
	d := w.instance()
	c := Change{Target: target("x"), Document: []byte(`{"a":1}`), Revision: new(uint64)}
	doc, err := d.trySet(t.Context(), c, "mine")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := d.trySet(t.Context(), c, "mine"); err != nil || again.rev != doc.rev {
		t.Errorf("%+v %v", again, err)
	}
	if _, err := d.trySet(t.Context(), c, "another's"); !errors.Is(err, ErrChanged) {
		t.Errorf("%v", err)
	}
	r := Change{Target: target("x"), Remove: true}
	gone, err := d.trySet(t.Context(), r, "gone")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := d.trySet(t.Context(), r, "gone"); err != nil || again.rev != gone.rev {
		t.Errorf("%+v %v", again, err)
	}
	m, err := d.last(t.Context(), subjectPrefix+"doc.device.x")
	if err != nil || m.Header.Get("Nats-TTL") == "" {
		t.Errorf("the mark stays for ever: %v %v", m.Header, err)
	}
}

func TestSetAndStopRace(t *testing.T) {
	w := newWorld(t)
	d, stop := w.start()
	var work sync.WaitGroup
	for i := range 4 {
		work.Go(func() {
			for n := range 5 {
				_, err := d.Set(context.Background(), Change{Target: target(key(i)), Document: fmt.Appendf(nil, `{"n":%d}`, n)})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	stop()
	work.Wait()
	if got, _, err := w.instance().List("", 10); err != nil || len(got) != 4 {
		t.Errorf("%d %v", len(got), err)
	}
}

func TestReportOnTheWireIsWhatIsStored(t *testing.T) {
	rep := wire.DesiredReport{Version: "1-a", State: wire.DesiredRefused, Reason: "r", At: 5}
	data, err := json.Marshal(rep)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := parseReport(store.Stored{Subject: reportPrefix + "x", Data: data}); err != nil || got.DesiredReport != rep {
		t.Errorf("%+v %v", got, err)
	}
}
