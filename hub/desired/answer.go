package desired

import (
	"context"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Answer takes in what a device reports and returns what it is to have instead;
// nil: what it has, or nothing is known.
func (d *Desired) Answer(ctx context.Context, device string, rep *wire.DesiredReport) (*wire.Desired, error) {
	if rep.Version != "" {
		if err := d.note(ctx, device, rep); err != nil {
			return nil, err
		}
	}
	if d.ready() != nil {
		return nil, nil
	}
	docs, known := d.documents(device)
	if !known || len(docs) == 0 && rep.Version == "" {
		return nil, nil
	}
	m, err := d.mergedOf(docs)
	if err != nil || m.tooLarge() || m.isWith(rep) {
		return nil, err
	}
	if rev, _ := split(rep.Version); rev > m.rev { // documents were removed, or this instance lags
		if lags, err := d.behind(ctx); err != nil || lags {
			d.wakeLater(device)
			return nil, err
		}
	}
	document, err := readable(m.data)
	if err != nil {
		return nil, err
	}
	return &wire.Desired{Version: m.version, Document: document}, nil
}

// isWith reports whether the device has the document. One that has refused it gets
// it again only after it was written again.
func (m *merged) isWith(rep *wire.DesiredReport) bool {
	rev, hash := split(rep.Version)
	return hash == m.hash && (rep.State != wire.DesiredRefused || rev >= m.rev)
}
