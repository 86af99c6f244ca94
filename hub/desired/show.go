package desired

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// maxNamed is how many devices a summary names.
const maxNamed = 20

// Device shows what is wanted of a device, and what became of it.
func (d *Desired) Device(ctx context.Context, device string) (out admin.DesiredDevice, err error) {
	if err := d.ready(); err != nil {
		return out, err
	}
	docs, known := d.documents(device)
	m, err := d.mergedOf(docs)
	if err != nil {
		return out, err
	}
	rep, err := d.report(ctx, device)
	if err != nil {
		return out, err
	}
	out = admin.DesiredDevice{Device: device, State: m.state(rep), Documents: []admin.DesiredDocument{}, Labels: known}
	for _, doc := range docs {
		out.Documents = append(out.Documents, doc.show(true))
	}
	if rep.Version != "" {
		out.Report = rep.show()
	}
	switch out.State {
	case admin.DesiredTooLarge:
		out.Reason = fmt.Sprintf("all that is wanted of it has %d bytes; the limit is %d, so nothing is sent: make one of the documents smaller", m.size, wire.MaxDesired)
	case admin.DesiredRefused, admin.DesiredTrial:
		out.Reason = rep.Reason
	}
	if out.State != admin.DesiredNone {
		out.Version = m.version
	}
	out.Merged, err = readable(m.data)
	return out, err
}

// readable is a canonical document without escapes that only HTML needs.
func readable(data []byte) (json.RawMessage, error) {
	if data == nil {
		return json.RawMessage("null"), nil
	}
	o, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("desired: %w", err)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err = enc.Encode(o)
	return bytes.TrimSpace(b.Bytes()), err
}

// state is what became of m at a device that reports rep.
func (m *merged) state(rep *report) admin.DesiredState {
	rev, hash := split(rep.Version)
	switch {
	case m.tooLarge():
		return admin.DesiredTooLarge
	case m.rev == 0 && (rep.Version == "" || hash == m.hash && rep.State == wire.DesiredApplied):
		return admin.DesiredNone
	case hash != m.hash, rep.State == wire.DesiredRefused && rev < m.rev:
		return admin.DesiredNotYet
	}
	return admin.DesiredState(rep.State)
}

// Label shows what was set for a label, and what became of it at the devices that
// have it: whether each has all that is wanted of it now.
func (d *Desired) Label(ctx context.Context, t Target) (out admin.DesiredLabel, err error) {
	if err := d.ready(); err != nil {
		return out, err
	}
	out = admin.DesiredLabel{Label: t.Label(), States: map[admin.DesiredState]int{}, Refused: map[string]string{}}
	d.mu.RLock()
	doc := d.table.get(t.key())
	d.mu.RUnlock()
	if doc != nil {
		shown := doc.show(true)
		out.Document = &shown
	}
	want := map[string]*merged{}
	err = d.eachOf(t, 0, func(dev *admin.Device) error {
		d.mu.RLock()
		docs := d.table.applies(dev.Device, dev.Labels, nil)
		d.mu.RUnlock()
		m, err := d.mergedOf(docs)
		if err == nil && own(docs) {
			m = &merged{rev: m.rev, hash: m.hash, size: m.size} // not shared: its content is not needed
		}
		want[dev.Device] = m
		return err
	})
	if err != nil {
		return out, err
	}
	out.Devices = len(want)
	return out, d.count(ctx, want, &out)
}

// count adds what devices reported.
func (d *Desired) count(ctx context.Context, want map[string]*merged, out *admin.DesiredLabel) error {
	add := func(device string, m *merged, rep *report) {
		s := m.state(rep)
		if out.States[s]++; s == admin.DesiredRefused && len(out.Refused) < maxNamed {
			out.Refused[device] = rep.Reason
		}
	}
	if len(want) == 0 {
		return nil
	}
	r, err := d.cfg.Store.FilteredReader(store.DesiredIndex, reportPrefix+"*", 1)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		m, err := r.Next(ctx)
		if errors.Is(err, store.ErrNotFound) {
			break
		}
		if err != nil {
			return err
		}
		device := m.Subject[len(reportPrefix):]
		mine, ok := want[device]
		if !ok {
			continue
		}
		if rep, err := parseReport(m); err == nil { // else as if there was none
			delete(want, device) // one that changes meanwhile comes again
			add(device, mine, rep)
		}
	}
	for device, m := range want {
		add(device, m, &report{})
	}
	return nil
}

// List shows up to limit of the documents, without content, after the given one;
// next is where to go on, empty if there was no more.
func (d *Desired) List(after string, limit int) (out []admin.DesiredDocument, next string, err error) {
	if err := d.ready(); err != nil {
		return nil, "", err
	}
	out = []admin.DesiredDocument{}
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, key := range slices.Sorted(maps.Keys(d.table.docs)) {
		switch doc := d.table.get(key); {
		case doc == nil || key <= after:
		case len(out) == limit:
			return out, next, nil
		default:
			out, next = append(out, doc.show(false)), key
		}
	}
	return out, "", nil
}
