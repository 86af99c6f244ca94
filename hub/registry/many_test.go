package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// held is a bucket in memory: what a registry reads is put there by hand, and goes
// to the watch when the test lets it.
type held struct {
	Bucket
	updates chan jetstream.KeyValueEntry
	mu      sync.Mutex
	writes  map[string]int
	rev     uint64
}

func newHeld() *held {
	return &held{updates: make(chan jetstream.KeyValueEntry), writes: map[string]int{}, rev: 1 << 40}
}

func (h *held) WatchAll(context.Context, ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	return h, nil
}
func (h *held) Updates() <-chan jetstream.KeyValueEntry { return h.updates }
func (h *held) Stop() error                             { return nil }
func (h *held) Error() <-chan error                     { return nil }

func (h *held) Delete(_ context.Context, key string, _ ...jetstream.KVDeleteOpt) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.writes, key)
	return nil
}

func (h *held) Create(ctx context.Context, key string, value []byte, _ ...jetstream.KVCreateOpt) (uint64, error) {
	return h.Update(ctx, key, value, 0)
}

func (h *held) Update(_ context.Context, key string, _ []byte, _ uint64) (uint64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes[key]++
	h.rev++
	return h.rev, nil
}

// value is an entry of a bucket.
type value struct {
	jetstream.KeyValueEntry
	key  string
	data []byte
	rev  uint64
}

func (v value) Key() string                     { return v.key }
func (v value) Value() []byte                   { return v.data }
func (v value) Revision() uint64                { return v.rev }
func (v value) Operation() jetstream.KeyValueOp { return jetstream.KeyValuePut }

func stored(t testing.TB, rec record, rev uint64) value {
	t.Helper()
	data, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	return value{key: rec.Device.Device, data: data, rev: rev}
}

// manyDevices makes n devices known as the bucket does, every third online.
func manyDevices(r *Registry, now time.Time, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range n {
		name := fmt.Sprintf("d%06d", i*7919%n)
		r.take(name, record{Token: "01234567", Device: admin.Device{
			Device: name, Online: i%3 == 0, Seen: now, Since: now, Created: now, Every: 60,
			Labels:  map[string]string{"site": fmt.Sprint(i % 10)},
			Backlog: map[string]wire.LaneBacklog{"normal": {Messages: 2}},
		}}, uint64(i+1))
	}
}

// list reads all pages.
func list(t *testing.T, r *Registry, filter string, limit int) (names []string) {
	t.Helper()
	for after := ""; ; {
		page := r.Devices(after, filter, limit)
		for _, d := range page.Devices {
			names = append(names, d.Device)
		}
		if page.Next == "" {
			return names
		}
		if len(page.Devices) != limit || page.Next != page.Devices[limit-1].Device || page.Next <= after {
			t.Fatalf("after %q: %d devices, next %q", after, len(page.Devices), page.Next)
		}
		after = page.Next
	}
}

// TestManyDevices: 50,000 known devices are listed completely and none twice, are
// counted right, and those of which nothing is heard take no entry.
func TestManyDevices(t *testing.T) {
	const n = 50_000
	c := newClock()
	r := newRegistry(Config{Instance: "h1", Now: c.now})
	manyDevices(r, c.now(), n)
	if len(r.entries) != 0 {
		t.Fatalf("%d entries of devices that are only known", len(r.entries))
	}
	check := func(filter string, want, online int) {
		t.Helper()
		page := r.Devices("", filter, 1)
		if page.Total != want || page.Online != online {
			t.Errorf("%q: %d, %d online; want %d, %d", filter, page.Total, page.Online, want, online)
		}
		names := list(t, r, filter, 997)
		if len(names) != want || !slices.IsSorted(names) || len(slices.Compact(names)) != want {
			t.Errorf("%q: %d names of %d", filter, len(names), want)
		}
	}
	const online = (n + 2) / 3
	check("", n, online)
	check("state=online", online, online)
	check("state=offline", n-online, 0)
	check("d00012", 10, len(r.onlineOf("d00012")))
	check("site=3", n/10, len(r.onlineOf("site=3")))
	if k := r.Numbers(); k.Backlog != 2*n || k.Online != online || k.Offline != n-online {
		t.Errorf("%+v", k)
	}
	// Nobody is heard: those that were online go, some at a time, and are written.
	c.advance(151 * time.Second)
	f, kv := flusher{r: r}, newHeld()
	r.cfg.Bucket = kv
	most := 0
	for range 1 + online/sweepWakes + 2*n/sweepLooks {
		r.sweep()
		most = max(most, len(r.entries))
		c.advance(time.Second)
		for range sweepWakes/portion + 1 {
			f.flush(t.Context(), false)
		}
	}
	check("state=online", 0, 0)
	if len(kv.writes) != online {
		t.Errorf("%d of %d turns are written", len(kv.writes), online)
	}
	c.advance(2 * time.Minute)
	r.sweep()
	if len(r.entries) != 0 {
		t.Errorf("%d entries although nothing happens", len(r.entries))
	}
	if k := r.Numbers(); k.Backlog != 2*n || k.Online != 0 || k.Offline != n {
		t.Errorf("%+v", k)
	}
}

// onlineOf lists what a filter takes and is online, the slow way.
func (r *Registry) onlineOf(filter string) (names []string) {
	for _, d := range r.Devices("", filter, 1<<30).Devices {
		if d.Online {
			names = append(names, d.Device)
		}
	}
	return names
}

// TestPagesWhileDevicesComeAndGo: a device that is there all the time is in the
// pages once, whatever happens to the others meanwhile.
func TestPagesWhileDevicesComeAndGo(t *testing.T) {
	const n = 5000
	c := newClock()
	r := newRegistry(Config{Instance: "h1", Now: c.now, Bucket: newHeld()})
	manyDevices(r, c.now(), n)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { // devices with an x come and go
		defer close(done)
		rnd := rand.New(rand.NewPCG(1, 2))
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			name, s := fmt.Sprintf("d%06dx", rnd.IntN(n)), wire.SessionID{byte(i), byte(i >> 8)}
			r.Opened(name, &wire.Open{Process: "p"}, s)
			r.Ended(name, s, true)
			if err := r.Forget(t.Context(), name); err != nil {
				t.Errorf("forget %s: %v", name, err)
				return
			}
		}
	}()
	for range 3 {
		names := slices.DeleteFunc(list(t, r, "", 100), func(s string) bool { return s[len(s)-1] == 'x' })
		if len(names) != n || !slices.IsSorted(names) || len(slices.Compact(names)) != n {
			t.Errorf("%d names of %d", len(names), n)
		}
	}
	close(stop)
	<-done
	if k := r.Numbers(); k.Online+k.Offline != n || k.Backlog != 2*n {
		t.Errorf("%+v", k)
	}
}

// TestPackedDeviceComesBack: what a device was survives that it is packed, the
// process that said bye included.
func TestPackedDeviceComesBack(t *testing.T) {
	c := newClock()
	r := newRegistry(Config{Instance: "h1", Now: c.now, Bucket: newHeld()})
	a := &agent{r: r, device: "d1", process: "p"}
	s, _ := a.open(true)
	a.beat(10)
	r.Ended("d1", s, true)
	want := get(t, r, "d1")
	f := flusher{r: r}
	f.flush(t.Context(), true)
	for range 3 {
		c.advance(time.Minute)
		r.sweep()
	}
	if len(r.entries) != 0 {
		t.Fatal("it is not packed")
	}
	if d := get(t, r, "d1"); !reflect.DeepEqual(d, want) {
		t.Errorf("packed: %+v\nbefore: %+v", d, want)
	}
	a.beat(10)
	if get(t, r, "d1").Online {
		t.Error("a late heartbeat of the process that said bye makes it online")
	}
	if _, notice := a.open(true); notice != "" {
		t.Error("the original is taken for a copy")
	}
	copied := &agent{r: r, device: "d1", process: "q"}
	if _, notice := copied.open(true); notice != NoticeClone {
		t.Error("a wiped spool is not noticed")
	}
}

// TestLongListIsReadBehind: a registry whose bucket takes long is there at once and
// says that there are more; devices that come before their record are judged when
// it is read.
func TestLongListIsReadBehind(t *testing.T) {
	c, kv := newClock(), newHeld()
	r, err := Open(t.Context(), Config{Bucket: kv, Instance: "h1", Now: c.now, Patience: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	if !r.Devices("", "", 10).Loading || !r.Numbers().Loading {
		t.Error("it does not say that there are more")
	}
	if err := r.Forget(t.Context(), "copied"); !errors.Is(err, ErrLoading) {
		t.Errorf("forget: %v", err)
	}
	token := newToken("")
	for _, device := range []string{"copied", "original", "unknown"} {
		o := &wire.Open{Process: "p", Token: newToken(token)}
		if _, notice := r.Opened(device, o, wire.SessionID{1}); notice != "" {
			t.Errorf("%s: notice %q", device, notice)
		}
	}
	before := c.now().Add(-time.Hour)
	for i, rec := range []record{
		{Token: link(newToken("")), Device: admin.Device{Device: "copied", Seen: before, Created: before}},
		{Token: link(token), Device: admin.Device{Device: "original", Seen: before, Created: before}},
		{Token: link(token), Device: admin.Device{Device: "away", Seen: before, Created: before}},
	} {
		kv.updates <- stored(t, rec, uint64(i+1))
	}
	kv.updates <- nil
	eventually(t, "the list is complete", func() bool { return !r.Numbers().Loading })
	for device, want := range map[string]uint64{"copied": 1, "original": 0, "unknown": 0, "away": 0} {
		if n := reports(t, r, device); n != want {
			t.Errorf("%s: %d reports, want %d", device, n, want)
		}
		if d := get(t, r, device); device != "unknown" && !d.Created.Equal(before) || d.Online != (device != "away") {
			t.Errorf("%s: %+v", device, d)
		}
	}
	if n := r.Devices("", "", 10); n.Loading || n.Total != 4 || n.Online != 3 {
		t.Errorf("%+v", n)
	}
}

// TestManyDevicesRestart: a bucket with many devices is read again by the next
// instance, and what was forgotten stays away.
func TestManyDevicesRestart(t *testing.T) {
	const n = 1000
	kv, js := bucketIn(t)
	for i := range n {
		v := stored(t, record{Device: admin.Device{Device: fmt.Sprintf("d%06d", i), Labels: map[string]string{"site": "s"}}}, 1)
		if _, err := js.PublishAsync("$KV.fieldpost_devices."+v.key, v.data); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(2 * time.Minute):
		t.Fatal("the bucket is not filled")
	}
	r, stop := run(t, kv, "h1")
	eventually(t, "all are known", func() bool { return r.Devices("", "", 1).Total == n })
	for i := range 10 {
		if err := r.Forget(t.Context(), fmt.Sprintf("d%06d", i*50)); err != nil {
			t.Fatal(err)
		}
	}
	(&agent{r: r, device: "d000001", process: "p"}).beat(10)
	stop()
	r, _ = run(t, kv, "h2")
	eventually(t, "all are known again", func() bool { return !r.Numbers().Loading })
	if page := r.Devices("", "site=s", 1); page.Total != n-10 {
		t.Errorf("%d devices", page.Total)
	}
	if d := get(t, r, "d000001"); d.Version != "1" || !d.Online {
		t.Errorf("%+v", d)
	}
	if _, ok := r.Device("d000050"); ok {
		t.Error("a forgotten device is back")
	}
}

// TestLabelsAreBounded: labels of all devices together take no more than they may.
func TestLabelsAreBounded(t *testing.T) {
	rejected := map[string]int{}
	r := newRegistry(Config{Instance: "h1", Now: newClock().now, MaxLabels: 100, Rejected: func(reason string) { rejected[reason]++ }})
	for i := range 100 {
		r.Opened(fmt.Sprint(i), &wire.Open{Labels: map[string]string{"site": "north"}}, wire.SessionID{byte(i)})
	}
	if r.labels < 100 || r.labels > 109 || rejected["labels_full"] != 100-int(r.labels)/9 {
		t.Errorf("%d bytes of labels, %v", r.labels, rejected)
	}
	if n := r.Devices("", "site=north", 1).Total; n != int(r.labels)/9 {
		t.Errorf("%d devices have them", n)
	}
}

// TestNewDevicesAreSaidInFew: a thousand at once are a few lines of the log.
func TestNewDevicesAreSaidInFew(t *testing.T) {
	var log bytes.Buffer
	c := newClock()
	r := newRegistry(Config{Now: c.now, MaxDevices: 1000, Log: slog.New(slog.NewTextHandler(&log, nil))})
	for i := range 1500 {
		r.Heartbeat(fmt.Sprintf("d%d", i), []byte(`{}`))
	}
	c.advance(time.Minute)
	r.sweep()
	if n := strings.Count(log.String(), "\n"); n != newsASecond+2 || !strings.Contains(log.String(), "devices=990") {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
}
