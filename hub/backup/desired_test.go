package backup

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/desired"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// settled runs what keeps desired settings of a store, while fn is called.
func settled(t *testing.T, s *store.Store, fn func(*desired.Desired)) {
	t.Helper()
	nc, err := s.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	d, err := desired.New(desired.Config{Store: s, Conn: nc, Devices: registryOfOne{}})
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx(t))
	done := make(chan error, 1)
	go func() { done <- d.Run(running) }()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		_, _, err := d.List("", 1)
		if err == nil {
			break
		}
		if !errors.Is(err, desired.ErrLoading) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
	fn(d)
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// registryOfOne knows press-7, of site north.
type registryOfOne struct{}

func (registryOfOne) Device(device string) (admin.Device, bool) {
	return admin.Device{Device: device, Version: "1", Labels: map[string]string{"site": "north"}}, device == "press-7"
}

func (registryOfOne) Devices(string, string, int) admin.Devices { return admin.Devices{} }

// TestDesiredSettings: order, revisions and reports come back, so that a device has
// the same settings after a restore and is sent nothing.
func TestDesiredSettings(t *testing.T) {
	old := embedded(t, t.TempDir())
	fill(t, old)
	var before admin.DesiredDevice
	var has wire.DesiredReport
	settled(t, old, func(d *desired.Desired) {
		for _, c := range []desired.Change{
			{Target: desired.Target{Device: "press-7"}, Document: []byte(`{"a":1,"b":1}`)},
			{Target: desired.Target{Device: "press-8"}, Document: []byte(`{}`)},
			{Target: desired.Target{Key: "site", Value: "north"}, Document: []byte(`{"a":2}`)},
			{Target: desired.Target{Device: "press-8"}, Remove: true},
		} {
			if _, err := d.Set(ctx(t), c); err != nil {
				t.Fatal(err)
			}
		}
		got, err := d.Answer(ctx(t), "press-7", &wire.DesiredReport{})
		if err != nil || got == nil || string(got.Document) != `{"a":2,"b":1}` {
			t.Fatalf("%+v %v", got, err)
		}
		has = wire.DesiredReport{Version: got.Version, State: wire.DesiredApplied}
		if _, err := d.Answer(ctx(t), "press-7", &has); err != nil {
			t.Fatal(err)
		}
		if before, err = d.Device(ctx(t), "press-7"); err != nil {
			t.Fatal(err)
		}
	})
	dir, _ := save(t, old)
	s := embedded(t, t.TempDir())
	if err := restore(t, Config{Store: s, Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if err := s.EnsureStreams(ctx(t), testLayout); err != nil {
		t.Fatal(err)
	}
	settled(t, s, func(d *desired.Desired) {
		if got, err := d.Answer(ctx(t), "press-7", &has); err != nil || got != nil {
			t.Errorf("it is sent %+v, %v", got, err)
		}
		after, err := d.Device(ctx(t), "press-7")
		if err != nil || after.State != admin.DesiredApplied || text(t, after) != text(t, before) {
			t.Errorf("before: %s\nafter: %s, %v", text(t, before), text(t, after), err)
		}
		if l, _, err := d.List("", 10); err != nil || len(l) != 2 {
			t.Errorf("%+v %v", l, err)
		}
	})
}

// text is what is shown of a device, but for times that the hub's own clock gave
// before the server's were read.
func text(t *testing.T, d admin.DesiredDevice) string {
	t.Helper()
	for i := range d.Documents {
		d.Documents[i].At = time.Time{}
	}
	out, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
