package desired

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	reportBurst = 20               // changes of one device's report at once
	reportEvery = 10 * time.Second // between later ones
	maxRates    = 10_000           // devices whose changes are counted
)

// report is what the bucket has of a device.
type report struct {
	wire.DesiredReport
	heard time.Time
	rev   uint64
}

func parseReport(m store.Stored) (*report, error) {
	r := &report{heard: m.Time, rev: m.Seq}
	if removed(m.Header) {
		return r, nil
	}
	if err := json.Unmarshal(m.Data, &r.DesiredReport); err != nil {
		return nil, fmt.Errorf("desired: the entry %s of bucket %s is not readable: %w", m.Subject[len(subjectPrefix):], store.DesiredBucket, err)
	}
	return r, nil
}

func (r *report) show() *admin.DesiredReport {
	out := &admin.DesiredReport{Version: r.Version, State: r.State, Reason: r.Reason, Heard: r.heard.UTC()}
	if r.At > 0 {
		out.At = time.UnixMilli(r.At).UTC()
	}
	return out
}

// report reads what a device said last at the leader; one without a version if it
// never said anything. What is not readable will be overwritten.
func (d *Desired) report(ctx context.Context, device string) (*report, error) {
	m, err := d.last(ctx, reportPrefix+device)
	if errors.Is(err, store.ErrNotFound) {
		return &report{}, nil
	}
	if err != nil {
		return nil, err
	}
	r, err := parseReport(m)
	if err != nil {
		d.cfg.Log.Warn("a report is not readable and will be overwritten", "device", device, "err", err)
		return &report{rev: m.Seq}, nil
	}
	return r, nil
}

// note makes a report durable if it is another one than before. The device repeats
// it with every request: what is too much now, or overtaken, comes again.
func (d *Desired) note(ctx context.Context, device string, rep *wire.DesiredReport) error {
	if dev, ok := d.cfg.Devices.Device(device); !ok || !heard(&dev) {
		return nil // as many keys as devices that are known
	}
	was, err := d.report(ctx, device)
	if err != nil {
		return err
	}
	if was.Version == rep.Version && was.State == rep.State && was.Reason == rep.Reason {
		return nil
	}
	if !d.reports.allow(device, time.Now()) { // a rate, not a time that anybody sees
		d.cfg.Rejected("desired_reports")
		return nil
	}
	data, err := json.Marshal(rep)
	if err == nil {
		err = d.fault("report")
	}
	if err != nil {
		return err
	}
	err = d.write(ctx, device, was.rev, data, nil)
	if errors.Is(err, store.ErrGuard) {
		return nil
	}
	return err
}

// Forget removes what a device has reported. What is wanted of it stays.
func (d *Desired) Forget(ctx context.Context, device string) error {
	was, err := d.report(ctx, device)
	if err != nil || was.Version == "" {
		return err
	}
	return d.write(ctx, device, was.rev, nil, nats.Header{hdrOperation: {opDelete}, hdrTTL: {markFor}})
}

func (d *Desired) write(ctx context.Context, device string, guard uint64, data []byte, h nats.Header) error {
	if h == nil {
		h = nats.Header{}
	}
	h[store.GuardSubject] = []string{strconv.FormatUint(guard, 10)}
	if _, err := d.cfg.Store.PublishBatch(ctx, []store.Msg{{Subject: reportPrefix + device, Header: h, Data: data}}); err != nil {
		return fmt.Errorf("desired: write the report of %s: %w", device, err)
	}
	return nil
}

// reportRate bounds how often devices change their report.
type reportRate struct {
	mu      sync.Mutex
	devices map[string]*allowance // guarded by mu
}

type allowance struct {
	left float64
	at   time.Time
}

func (r *reportRate) allow(device string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.devices[device]
	if a == nil {
		if len(r.devices) >= maxRates {
			r.forget(now)
		}
		a = &allowance{left: reportBurst, at: now}
		r.devices[device] = a
	}
	a.left, a.at = min(reportBurst, a.left+now.Sub(a.at).Seconds()/reportEvery.Seconds()), now
	if a.left < 1 {
		return false
	}
	a.left--
	return true
}

// forget makes room: first of devices that may do as much as any other, then, as
// more than maxRates cannot be told apart, of all. r.mu is held.
func (r *reportRate) forget(now time.Time) {
	for device, a := range r.devices {
		if a.left+now.Sub(a.at).Seconds()/reportEvery.Seconds() >= reportBurst {
			delete(r.devices, device)
		}
	}
	if len(r.devices) >= maxRates {
		clear(r.devices)
	}
}
