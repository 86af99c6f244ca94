package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Headers of the ledger's messages.
const (
	hdrVoid  = "Fieldpost-Void"
	hdrPiece = "Fieldpost-Piece" // <i>/<n>
	hdrMark  = "Fieldpost-Mark"
)

// decoders are reused; one holds about two megabytes, and what its last block
// took if that is small.
type decoders struct {
	mu   sync.Mutex
	free []*decoder // at most as many as blocks are handled at a time; guarded by mu
}

type decoder struct {
	wire *wire.Decoder
	mem  wire.Memory
}

func (d *decoders) get() *decoder {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.free); n > 0 {
		out := d.free[n-1]
		d.free = d.free[:n-1]
		return out
	}
	return &decoder{wire: wire.NewDecoder()}
}

func (d *decoders) put(x *decoder) {
	if !x.mem.Small() {
		x.mem = wire.Memory{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free = append(d.free, x)
}

// fence makes sure that what is handled is in the ledger for good. A consumer is
// handed messages of an atomic batch while the server still stores and syncs
// that; a read of the stream waits until it has.
type fence struct {
	get    source
	mu     sync.Mutex
	newest uint64 // sequence that was handed out; guarded by mu
	read   sync.Mutex
	passed uint64 // everything up to it is durable; guarded by read
}

// saw notes that seq was handed out.
func (f *fence) saw(seq uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.newest = max(f.newest, seq)
}

// pass returns when seq is durable.
func (f *fence) pass(ctx context.Context, seq uint64) error {
	f.read.Lock()
	defer f.read.Unlock()
	if seq <= f.passed {
		return nil
	}
	f.mu.Lock()
	newest := f.newest
	f.mu.Unlock()
	// No message has this sequence: the answer is small.
	if _, err := f.get(ctx, getRequest{Seq: wire.MaxSeq}); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return err
	}
	f.passed = newest
	return nil
}

// wholeBlock returns the block of which the last piece is at hand; ok is false
// for the other pieces.
func wholeBlock(ctx context.Context, get source, seq uint64, subject string, h nats.Header, data []byte) (_ []byte, ok bool, err error) {
	v := h.Get(hdrPiece)
	if v == "" {
		return data, true, nil
	}
	i, n, ok := wire.ParsePart(v)
	if !ok {
		return nil, true, fmt.Errorf("%w: header %s: %.32q is not <i>/<n>", errParts, hdrPiece, v)
	}
	if i < n {
		return nil, false, nil
	}
	data, err = join(ctx, get, seq, n, data, func(m *jetstream.RawStreamMsg, i int) bool {
		return m.Subject == subject && m.Header.Get(hdrPiece) == wire.PartName(i, n)
	})
	return data, true, err
}

// flowOf reads device and flow from a subject of the ledger, and holds them
// against what the block says of itself.
func flowOf(subject string, h *wire.Header) (device string, err error) {
	rest, ok := strings.CutPrefix(subject, "fp.blocks.")
	device, _, _ = strings.Cut(rest, ".")
	if !ok || wire.CheckDevice(device) != nil || wire.BlockSubject(device, h.Flow) != subject {
		return "", fmt.Errorf("%w: flow %s lies under %.400s", wire.ErrCorrupt, h.Flow, subject)
	}
	return device, nil
}
