package desired

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// wakeStep is how many devices are woken at once before the pause that WakeRate asks for.
const wakeStep = 200

// toWake has the devices of a key woken; d.mu is held. There are no more keys than
// documents, those that were removed included, and maxLate.
func (d *Desired) toWake(key string) {
	d.waking[key] = true
	select {
	case d.wakeNow <- struct{}{}:
	default:
	}
}

// maxLate is how many devices are woken again; more ask by themselves.
const maxLate = 10_000

// wakeLater has a device woken when this instance has read on.
func (d *Desired) wakeLater(device string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.late) < maxLate {
		d.late[device] = true
	}
}

// wakeLoop wakes, a few devices at a time, until ctx ends.
func (d *Desired) wakeLoop(ctx context.Context) {
	p := &pace{every: time.Duration(wakeStep) * time.Second / time.Duration(d.cfg.WakeRate)}
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wakeNow:
		}
		d.mu.Lock()
		keys := d.waking
		d.waking = map[string]bool{} // what changes from now on comes again
		d.mu.Unlock()
		for key := range keys {
			if err := d.wakeAll(ctx, key, p); err != nil && ctx.Err() == nil {
				d.cfg.Log.Warn("devices are not woken for their settings; they ask by themselves within minutes, or an hour where bytes are dear", "of", key, "err", err)
			}
		}
	}
}

// wakeAll wakes the devices of a key that are online.
func (d *Desired) wakeAll(ctx context.Context, key string, p *pace) error {
	t, err := parseKey(key)
	if err == nil {
		err = d.fault("wake")
	}
	if err != nil {
		return err
	}
	if t.Device != "" {
		dev, ok := d.cfg.Devices.Device(t.Device)
		if !ok || !dev.Online {
			return nil
		}
		return errors.Join(d.wake(t.Device), p.wait(ctx))
	}
	return d.eachOf(t, 0, func(dev *admin.Device) error {
		if !dev.Online {
			return nil
		}
		if err := d.wake(dev.Device); err != nil {
			return err
		}
		return p.wait(ctx)
	})
}

func (d *Desired) wake(device string) error { return d.cfg.Conn.Publish(wire.WakeSubject(device), nil) }

// pace spreads what would come at once.
type pace struct {
	every time.Duration
	n     int
}

func (p *pace) wait(ctx context.Context) error {
	if p.n++; p.n%wakeStep != 0 {
		return nil
	}
	t := time.NewTimer(p.every)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// Around calls take, which may change the labels of a device, and wakes it if
// other documents are its own after that. It costs nothing where nothing is set.
func (d *Desired) Around(device string, take func()) {
	d.mu.RLock()
	live := d.table.live
	d.mu.RUnlock()
	if live == 0 {
		take()
		return
	}
	before, knew := d.documents(device)
	take()
	after, knows := d.documents(device)
	if !knows || slices.Equal(before, after) && (knew || len(after) == 0) {
		return
	}
	if err := d.wake(device); err != nil {
		d.cfg.Log.Debug("a device is not woken for its settings", "device", device, "err", err)
	}
}

// documents lists what a device gets; known is false as long as its labels are not.
func (d *Desired) documents(device string) (docs []*document, known bool) {
	dev, ok := d.cfg.Devices.Device(device)
	labels := dev.Labels
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.table.applies(device, labels, nil), ok && heard(&dev)
}

// heard reports whether a device has said what it is. An entry without that is of
// a session whose first heartbeat is still to come.
func heard(dev *admin.Device) bool { return dev.Every > 0 || dev.Version != "" }
