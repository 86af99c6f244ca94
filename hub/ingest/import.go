package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	importWindow   = 4 << 20     // block bytes under way
	importPatience = time.Minute // without anything stored, before it is given up
	importRetry    = time.Second
)

// Codes of an ImportError.
const (
	ImportWrongHub    = "wrong_hub"   // the file belongs to another hub
	ImportBadFile     = "bad_file"    // cut off, damaged, or of a newer version
	ImportHole        = "hole"        // something before a block is missing
	ImportRefused     = "refused"     // the ledger does not take a block
	ImportUnavailable = "unavailable" // the ledger stores nothing at present
	ImportStopping    = "stopping"    // the hub shuts down
	ImportInterrupted = "interrupted" // whoever sent the file has gone
)

// ImportError says why an import ended early. What was stored before stays, and
// is recognised when the file comes again.
type ImportError struct {
	Code string
	Err  error
}

func (e *ImportError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ImportError) Unwrap() error { return e.Err }

func importErr(code, format string, args ...any) *ImportError {
	return &ImportError{code, fmt.Errorf(format, args...)}
}

// Import stores what a portable file holds and the ledger lacks, by the rules
// that hold for sessions, in the order of the file; other imports and the
// device itself may send the same at the same time. With force, the file of
// another hub is taken too. The result is right beside an error as well.
func (in *Ingest) Import(ctx context.Context, x *wire.ExportReader, force bool) (admin.Imported, error) {
	head := x.Head()
	m := &importer{in: in, x: x, device: head.Device, flows: head.Flows}
	m.out = admin.Imported{Device: head.Device, HubID: head.HubID, Version: head.Version, Exported: time.UnixMilli(head.Created).UTC()}
	if head.HubID != "" && head.HubID != in.cfg.HubID && !force {
		return m.out, importErr(ImportWrongHub, "the file of device %s belongs to hub %s and this is %s", head.Device, head.HubID, in.cfg.HubID)
	}
	err := m.run(ctx)
	if m.s != nil {
		if _, ended := m.s.state(m.flow); ended == nil {
			m.s.close()
		}
	}
	m.out.File = x.Totals()
	return m.out, err
}

// importer brings one file into the ledger. It holds at most importWindow, or
// one block, and what the reader holds.
type importer struct {
	in     *Ingest
	x      *wire.ExportReader
	device string
	flows  []wire.FlowHeld // those that no session was opened for yet
	cutter uplink.Cutter

	s      *local
	opened []wire.FlowHeld // of s
	flow   wire.Flow       // whose blocks are being sent
	sent   wire.Ranges     // of flow, through s
	flight []flying        // not received yet, in order
	bytes  int             // of flight

	failing time.Time // since nothing was stored; zero if all is well
	out     admin.Imported
}

// flying is a block on its way into the ledger.
type flying struct {
	h    wire.Header // flow, kind, base and range
	body []byte
}

func (m *importer) run(ctx context.Context) error {
	for {
		h, data, err := m.x.Next()
		if err == nil {
			err = m.block(ctx, &h, data)
		} else {
			done := m.drain(ctx, 0) // what came before the end, or before the damage
			if err == io.EOF || done != nil {
				return done
			}
			err = fileError(ctx, err)
		}
		if err != nil {
			return err
		}
	}
}

func fileError(ctx context.Context, err error) error {
	if xe := (*wire.ExportError)(nil); errors.As(err, &xe) && ctx.Err() == nil {
		return &ImportError{ImportBadFile, err}
	}
	return importErr(ImportInterrupted, "the file stopped coming: %w", err)
}

// block sends what the ledger lacks of a block.
func (m *importer) block(ctx context.Context, h *wire.Header, data []byte) error {
	if h.Flow != m.flow {
		// An older epoch is received before a newer one begins.
		if err := m.begin(ctx, h.Flow); err != nil {
			return err
		}
	}
	received, _ := m.s.state(h.Flow)
	missing := received.Missing(h.Range())
	m.count(&m.out.Already, h.Kind, h.Count-missing.Len())
	if n := missing.Len(); n > 0 && n < h.Count {
		m.out.Recut++
	}
	pieces, err := m.fit(h, data, missing)
	for _, p := range pieces {
		if err := m.drain(ctx, max(importWindow-len(p.body), 0)); err != nil {
			return err
		}
		if err := m.launch(p); err != nil {
			return errors.Join(err, m.drain(ctx, 0))
		}
	}
	if err != nil {
		return errors.Join(&ImportError{ImportRefused, err}, m.drain(ctx, 0))
	}
	return nil
}

// fit cuts a block to what is missing of it. On an error it returns what comes
// before that.
func (m *importer) fit(h *wire.Header, data []byte, missing wire.Ranges) (out []flying, err error) {
	for _, r := range missing {
		err := m.cutter.Fit(data, h, r, m.in.cfg.Limits.MaxBlock, func(r wire.Range, body []byte) {
			p := flying{wire.Header{Flow: h.Flow, Kind: h.Kind, Base: h.Base, First: r.First, Count: r.Len()}, body}
			out = append(out, p)
		})
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

func (m *importer) count(p *admin.ImportedPart, k wire.Kind, n uint64) {
	if k == wire.KindVoid {
		p.Gone += n
	} else {
		p.Messages += n
	}
}

// launch sends a piece, unless something before it is missing: the ledger would
// refuse it, and only here can be said what.
func (m *importer) launch(p flying) error {
	received, _ := m.s.state(m.flow)
	coming := received.Union(m.sent)
	if uplink.Judge(coming, &p.h, true) == uplink.Early {
		hole := coming.Missing(wire.Range{First: p.h.Base, Last: p.h.First - 1})
		return importErr(ImportHole, "%s: %s cannot follow, because %s is missing: this hub does not have it and the file does not hold it",
			m.flow, p.h.Range(), hole)
	}
	p.body = m.s.send(wire.FrameBlock, p.body)
	m.sent = m.sent.Add(p.h.Range())
	m.flight = append(m.flight, p)
	m.bytes += len(p.body)
	return nil
}

// begin waits for the flow before and makes sure that the ledger's state of the
// next one is known.
func (m *importer) begin(ctx context.Context, f wire.Flow) error {
	if err := m.drain(ctx, 0); err != nil {
		return err
	}
	m.flow, m.sent = f, nil
	at := func(fs []wire.FlowHeld) int {
		return slices.IndexFunc(fs, func(h wire.FlowHeld) bool { return h.Flow == f })
	}
	live := false
	if m.s != nil {
		_, ended := m.s.state(f)
		live = ended == nil
	}
	if live && at(m.opened) >= 0 {
		return nil
	}
	m.flows = m.flows[at(m.flows):] // the reader lets only flows of the head through
	m.opened = m.flows[:min(len(m.flows), wire.MaxFlows)]
	if live {
		m.s.close()
	}
	return m.reopen(ctx, nil)
}

// drain waits until at most so many bytes are under way.
func (m *importer) drain(ctx context.Context, most int) error {
	for {
		ended := m.settle()
		switch {
		case ended != nil && (len(m.flight) > 0 || most > 0):
			if err := m.reopen(ctx, ended); err != nil {
				return err
			}
		case len(m.flight) == 0 || m.bytes <= most && most > 0:
			return nil
		default:
			if err := m.s.wait(ctx); err != nil {
				return waitError(err)
			}
		}
	}
}

func waitError(err error) error {
	if errors.Is(err, errStopped) {
		return importErr(ImportStopping, "the hub is stopping")
	}
	return importErr(ImportInterrupted, "the file stopped coming: %w", err)
}

// settle takes what is received out of flight; it returns how the session ended.
func (m *importer) settle() *wire.SessionError {
	if m.s == nil {
		return nil
	}
	received, ended := m.s.state(m.flow)
	m.flight = slices.DeleteFunc(m.flight, func(p flying) bool {
		if !received.Contains(p.h.Range()) {
			return false
		}
		m.bytes -= len(p.body)
		m.count(&m.out.Stored, p.h.Kind, p.h.Count)
		m.failing = time.Time{}
		return true
	})
	return ended
}

// reopen opens a session, after another has ended for a reason, and sends again
// what is missing of that which was under way.
func (m *importer) reopen(ctx context.Context, why *wire.SessionError) error {
	for {
		if err := m.pause(ctx, why); err != nil {
			return err
		}
		s, err := m.in.openLocal(ctx, m.device, m.opened)
		if err == nil {
			m.s, m.sent = s, nil
			return m.again()
		}
		if why = nil; !errors.As(err, &why) {
			return waitError(err)
		}
		if why.Code == wire.CodeRefused { // opened too often: it passes
			why = &wire.SessionError{Code: wire.CodeUnavailable, Detail: why.Detail}
		}
	}
}

// again sends what is missing of that which was under way.
func (m *importer) again() error {
	before := m.flight
	m.flight, m.bytes = nil, 0
	for _, p := range before {
		received, _ := m.s.state(m.flow)
		missing := received.Missing(p.h.Range())
		m.count(&m.out.Stored, p.h.Kind, p.h.Count-missing.Len())
		pieces, err := m.fit(&p.h, p.body, missing)
		if err != nil {
			return &ImportError{ImportRefused, err}
		}
		for _, q := range pieces {
			if err := m.launch(q); err != nil {
				return err
			}
		}
	}
	return nil
}

// pause decides whether trying again may help, and waits before it.
func (m *importer) pause(ctx context.Context, why *wire.SessionError) error {
	if why == nil {
		return nil
	}
	switch why.Code {
	case wire.CodeStopping:
		return importErr(ImportStopping, "the hub is stopping")
	case wire.CodeProtocol, wire.CodeRefused, wire.CodeCorrupt:
		return importErr(ImportRefused, "%s", why.Detail)
	}
	now := time.Now()
	switch {
	case m.failing.IsZero():
		m.failing = now
		if why.Code != wire.CodeUnavailable {
			return nil // somebody else has sent a part, or the session was replaced
		}
	case now.Sub(m.failing) > importPatience:
		return importErr(ImportUnavailable, "nothing could be stored for %s: %s", importPatience, why.Detail)
	}
	t := time.NewTimer(importRetry)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return waitError(ctx.Err())
	case <-m.in.stopped:
		return waitError(errStopped)
	}
}
