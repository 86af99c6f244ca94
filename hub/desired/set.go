package desired

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Change is what is to become of the document of a target.
type Change struct {
	Target
	Document []byte  // a JSON object
	Merge    bool    // lay Document over what is there, as RFC 7396 says, instead of replacing it
	Remove   bool    // there is to be none
	Revision *uint64 // that it has to have now; 0: there is none; nil: any
	By       string
}

// Set makes the change and returns the document when it is durable; a removed one
// without content. Nothing is changed with ErrInvalid, ErrNone (nothing to
// remove), ErrChanged (the revision is not Revision; 0 is that of none), ErrLarge,
// ErrFull, ErrLoading. With another error reading tells.
func (d *Desired) Set(ctx context.Context, c Change) (admin.DesiredDocument, error) {
	if err := c.check(); err != nil {
		return admin.DesiredDocument{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := d.ready(); err != nil {
		return admin.DesiredDocument{}, err
	}
	d.setting.Lock() // what one instance checks stays so until it has written
	defer d.setting.Unlock()
	once := rand.Text()
	for try := 0; ; try++ {
		doc, err := d.trySet(ctx, c, once)
		if err == nil {
			d.mu.Lock()
			d.table.put(doc)
			d.mu.Unlock()
			return doc.show(true), d.fault("stored")
		}
		if try == tries || !errors.Is(err, store.ErrGuard) && !errors.Is(err, store.ErrUnknownOutcome) {
			return admin.DesiredDocument{}, err
		}
	}
}

func (d *Desired) trySet(ctx context.Context, c Change, once string) (*document, error) {
	was, guard, err := d.current(ctx, c.Target)
	if err != nil {
		return nil, err
	}
	if was != nil && was.once == once { // it was stored, only the answer was lost
		return was, nil
	}
	if err := c.permits(was); err != nil {
		return nil, err
	}
	next := &document{Target: c.Target, key: c.key(), rev: math.MaxUint64, by: c.By, once: once}
	m := store.Msg{Subject: subjectPrefix + next.key, Header: nats.Header{store.GuardSubject: {strconv.FormatUint(guard, 10)}}}
	if c.Remove {
		m.Header[hdrOperation], m.Header[hdrTTL] = []string{opDelete}, []string{markFor}
	} else {
		if next.data, err = c.apply(was); err == nil {
			err = d.fits(next)
		}
		if err != nil {
			return nil, err
		}
	}
	if m.Data, err = json.Marshal(envelope{By: c.By, Once: once, Document: next.data}); err != nil {
		return nil, fmt.Errorf("desired: %w", err)
	}
	if err := d.fault("set"); err != nil {
		return nil, err
	}
	if next.rev, err = d.cfg.Store.PublishBatch(ctx, []store.Msg{m}); err != nil {
		return nil, fmt.Errorf("desired: write %s: %w", c.Target, err)
	}
	next.at = d.cfg.Now() // the server's own is read back a moment later
	return next, nil
}

// current is the document as the leader has it, nil if there is none, and the
// guard of the next write. One that cannot be read can be replaced.
func (d *Desired) current(ctx context.Context, t Target) (was *document, guard uint64, err error) {
	m, err := d.last(ctx, subjectPrefix+t.key())
	if errors.Is(err, store.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	was, err = parseDocument(m)
	if err != nil {
		d.cfg.Log.Warn("a document that cannot be read is overwritten", "of", t.String(), "err", err)
		return nil, m.Seq, nil
	}
	if was.data == nil {
		var e envelope // a mark of a hub has one, too
		if err := json.Unmarshal(m.Data, &e); err == nil {
			was.once = e.Once
		}
	}
	return was, m.Seq, nil
}

func (c *Change) check() error {
	if err := c.Target.check(); err != nil {
		return err
	}
	if c.Remove {
		return nil
	}
	o, err := parse(c.Document)
	if err != nil {
		return err
	}
	return checkAgent(o)
}

// permits compares with what is there.
func (c *Change) permits(was *document) error {
	rev := uint64(0)
	if was != nil && was.data != nil {
		rev = was.rev
	}
	switch {
	case c.Revision != nil && *c.Revision != rev && rev == 0:
		return fmt.Errorf("%w: nothing is set for %s now, so there is no revision %d", ErrChanged, c.Target, *c.Revision)
	case c.Revision != nil && *c.Revision != rev:
		return fmt.Errorf("%w: the document of %s has revision %d now, not %d; look at it and decide anew", ErrChanged, c.Target, rev, *c.Revision)
	case c.Remove && rev == 0:
		return fmt.Errorf("%w for %s", ErrNone, c.Target)
	}
	return nil
}

// apply is the document that is to be stored.
func (c *Change) apply(was *document) ([]byte, error) {
	o, err := parse(c.Document)
	if err == nil && c.Merge {
		base := object{}
		if was != nil && was.data != nil {
			if base, err = parse(was.data); err != nil {
				return nil, fmt.Errorf("desired: %w", err)
			}
		}
		o = merge(base, o)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	data, err := canonical(o)
	if err == nil && len(data) > wire.MaxDesired {
		err = fmt.Errorf("%w: the document of %s has %d bytes; the limit is %d: send the device where to get the rest", ErrLarge, c.Target, len(data), wire.MaxDesired)
	}
	return data, err
}

// fits checks what all documents take, and what devices would get, as far as is
// known now: of the first devices of a label.
func (d *Desired) fits(next *document) error {
	d.mu.RLock()
	was := d.table.get(next.key)
	live, bytes := d.table.live, d.table.bytes+int64(len(next.data))
	d.mu.RUnlock()
	if was != nil {
		live, bytes = live-1, bytes-int64(len(was.data))
	}
	switch {
	case live >= d.cfg.MaxDocuments:
		return fmt.Errorf("%w: %d documents are set, as many as a hub keeps; remove some, or use labels instead of devices", ErrFull, live)
	case bytes > d.cfg.MaxBytes:
		return fmt.Errorf("%w: all documents together would have %d bytes; a hub keeps %d: remove some", ErrFull, bytes, d.cfg.MaxBytes)
	}
	if next.Device != "" {
		dev, _ := d.cfg.Devices.Device(next.Device)
		return d.fitsDevice(next.Device, dev.Labels, next, nil)
	}
	known := map[string]bool{} // devices mostly have the same as others
	return d.eachOf(next.Target, maxFits, func(dev *admin.Device) error {
		return d.fitsDevice(dev.Device, dev.Labels, next, known)
	})
}

// maxFits is how many devices of a label are looked at before it is written.
const maxFits = 10_000

func (d *Desired) fitsDevice(device string, labels map[string]string, next *document, known map[string]bool) error {
	d.mu.RLock()
	docs := d.table.applies(device, labels, next)
	d.mu.RUnlock()
	name := revisions(docs)
	if len(docs) < 2 || known[name] {
		return nil
	}
	if known != nil {
		known[name] = true
	}
	total := 0
	for _, doc := range docs {
		total += len(doc.data)
	}
	if total <= wire.MaxDesired { // merging adds nothing
		return nil
	}
	m, err := mergeAll(docs)
	if err == nil && m.tooLarge() {
		err = fmt.Errorf("%w: all that is wanted of %s would have %d bytes; the limit is %d", ErrLarge, device, m.size, wire.MaxDesired)
	}
	return err
}

// eachOf calls fn with the devices of a label, limit at most (0: all), until it
// fails.
func (d *Desired) eachOf(t Target, limit int, fn func(*admin.Device) error) error {
	filter := t.Label()
	if t.Key == "state" { // is another filter
		filter = ""
	}
	for after, n := "", 0; ; {
		page := d.cfg.Devices.Devices(after, filter, pageSize)
		for i := range page.Devices {
			dev := &page.Devices[i]
			if v, ok := dev.Labels[t.Key]; !ok || v != t.Value {
				continue
			}
			if err := fn(dev); err != nil {
				return err
			}
			if n++; n == limit {
				return nil
			}
		}
		if page.Next == "" {
			return nil
		}
		after = page.Next
	}
}

const pageSize = 1000
