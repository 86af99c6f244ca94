package ingest

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Headers of the ledger's messages. Keys are in canonical form, as they are
// stored verbatim.
const (
	hdrReceived = "Fieldpost-Received" // the flow's received set after the message
	hdrVoid     = "Fieldpost-Void"     // the reason of a void
	hdrBlank    = "Fieldpost-Blank"    // "1": some messages of the block are blank
	hdrBackfill = "Fieldpost-Backfill" // "1": newer messages of the lane were stored before
	hdrPiece    = "Fieldpost-Piece"    // <i>/<n>: of a block that is too large for one message; the last carries the other headers
)

// maxReading bounds reads under way: after a restart every device asks at once.
const maxReading = 32

// commit stores a batch and reports how it ended.
func (in *Ingest) commit(ctx context.Context, a uplink.DoCommit) {
	ctx, cancel := context.WithTimeout(ctx, in.cfg.WriteTimeout)
	defer cancel()
	ev := uplink.RecvDone{Batch: a.Batch}
	var err error
	if err = in.cfg.Fault("commit:publish"); err == nil {
		ev.Last, err = in.cfg.Store.PublishBatch(ctx, messages(a.Blocks))
		if e := in.cfg.Fault("commit:answer"); e != nil {
			err = fmt.Errorf("%w: %w", store.ErrUnknownOutcome, e)
		}
		ev.Outcome = outcome(err)
	} else {
		ev.Outcome = uplink.OutcomeUnknown
	}
	in.put(event{in: ev, done: a.Blocks, err: err})
}

func outcome(err error) uplink.Outcome {
	switch {
	case err == nil:
		return uplink.OutcomeStored
	case errors.Is(err, store.ErrGuard):
		return uplink.OutcomeGuard
	case errors.Is(err, store.ErrFull):
		return uplink.OutcomeFull
	case errors.Is(err, store.ErrTooLarge):
		return uplink.OutcomeTooLarge
	case errors.Is(err, store.ErrUnknownOutcome), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return uplink.OutcomeUnknown
	}
	return uplink.OutcomeRefused
}

// messages are the blocks as the ledger holds them.
func messages(blocks []uplink.LedgerBlock) []store.Msg {
	out := make([]store.Msg, 0, len(blocks))
	values := make([]string, 0, 6*len(blocks)) // of all headers, in one piece
	value := func(s string) []string {
		values = append(values, s)
		return values[len(values)-1 : len(values) : len(values)]
	}
	for i := range blocks {
		b := &blocks[i]
		h := make(nats.Header, 6) // and two or three of the batch
		h[hdrReceived] = value(b.Received.String())
		if b.Void != 0 {
			h[hdrVoid] = value(b.Void.String())
		}
		if b.Blanked {
			h[hdrBlank] = value("1")
		}
		if b.Backfill {
			h[hdrBackfill] = value("1")
		}
		subject, first := wire.BlockSubject(b.Device, b.Flow), len(out)
		out = append(pieces(out, subject, b), store.Msg{Subject: subject, Header: h, Data: b.Data})
		if last := &out[len(out)-1]; b.Pieces > 1 {
			h[hdrPiece] = value(wire.PartName(b.Pieces, b.Pieces))
			last.Data = b.Data[(b.Pieces-1)*pieceSize(b):]
		}
		if b.Guarded {
			out[first].Header[store.GuardSubject] = value(strconv.FormatUint(b.Guard, 10))
		}
	}
	return out
}

// pieces appends the pieces of a block but for the last, which alone changes the
// received set: they share its batch, so none is ever there without it.
func pieces(out []store.Msg, subject string, b *uplink.LedgerBlock) []store.Msg {
	n := pieceSize(b)
	for i := range b.Pieces - 1 {
		h := nats.Header{hdrPiece: {wire.PartName(i+1, b.Pieces)}}
		out = append(out, store.Msg{Subject: subject, Header: h, Data: b.Data[i*n : (i+1)*n]})
	}
	return out
}

// pieceSize is how many bytes all pieces but the last have.
func pieceSize(b *uplink.LedgerBlock) int { return (len(b.Data) + b.Pieces - 1) / b.Pieces }

// startReads starts reads that wait, as many as may run.
func (in *Ingest) startReads(work context.Context) {
	for in.reading < maxReading && len(in.reads) > 0 {
		a := in.reads[0]
		in.reads = in.reads[1:]
		in.reading++
		in.work.Go(func() { in.read(work, a) })
	}
}

// read reads a flow's state from the stream's leader.
func (in *Ingest) read(ctx context.Context, a uplink.DoRead) {
	ctx, cancel := context.WithTimeout(ctx, in.cfg.ReadTimeout)
	defer cancel()
	ev := uplink.RecvRead{Read: a.Read}
	if ev.Err = in.cfg.Fault("read"); ev.Err == nil {
		m, err := in.cfg.Store.Last(ctx, in.cfg.Stream, wire.BlockSubject(a.Device, a.Flow))
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			ev.Err = err
		default:
			ev.Last = m.Seq
			ev.Received, ev.Err = receivedSet(m)
		}
	}
	in.put(event{in: ev, err: ev.Err})
}

// receivedSet is what the newest message of a subject says of its flow. Nothing
// is guessed: without it, nothing can be stored.
func receivedSet(m store.Stored) (wire.Ranges, error) {
	v := m.Header[hdrReceived]
	if len(v) != 1 {
		return nil, fmt.Errorf("ingest: message %d of the ledger (%s) has no %s header", m.Seq, m.Subject, hdrReceived)
	}
	set, err := wire.ParseRanges(v[0])
	if err != nil {
		return nil, fmt.Errorf("ingest: message %d of the ledger (%s): %w", m.Seq, m.Subject, err)
	}
	if len(set) == 0 {
		return nil, fmt.Errorf("ingest: message %d of the ledger (%s): %s is empty", m.Seq, m.Subject, hdrReceived)
	}
	return set, nil
}
