package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// maxWhole bounds the bytes of what is put together. A hub writes no message above
// 8 MiB.
const maxWhole = 20 << 20

// errParts means that the others of a message's parts cannot be had any more.
var errParts = errors.New("its other parts are not in the stream")

// join puts together what the stream holds in n messages that follow each other,
// of which the last is at hand, at seq. The parts of one message may be handed to
// different processes of a group; so the last one alone is handled, and the
// others are read from the stream. same reports whether a part belongs to it.
func join(ctx context.Context, get source, seq uint64, n int, last []byte, same func(m *jetstream.RawStreamMsg, i int) bool) ([]byte, error) {
	if uint64(n) > seq {
		return nil, fmt.Errorf("%w: part %d at sequence %d", errParts, n, seq)
	}
	size := len(last)
	parts := make([][]byte, n)
	parts[n-1] = last
	for i := range n - 1 {
		at := seq - uint64(n-1-i)
		m, err := get(ctx, getRequest{Seq: at})
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return nil, fmt.Errorf("%w: part %d of %d, at sequence %d, is gone", errParts, i+1, n, at)
		case err != nil:
			return nil, err
		case !same(m, i+1):
			return nil, fmt.Errorf("%w: at sequence %d is another message than part %d of %d", errParts, at, i+1, n)
		}
		if size += len(m.Data); size > maxWhole {
			return nil, fmt.Errorf("%w: they have more than %d bytes", errParts, maxWhole)
		}
		parts[i] = m.Data
	}
	whole := make([]byte, 0, size)
	for _, p := range parts {
		whole = append(whole, p...)
	}
	return whole, nil
}

// whole returns the payload of a message of a route's stream, of which the last
// part is at hand; ok is false for the other parts, which are not handled.
func whole(ctx context.Context, get source, seq uint64, subject string, h nats.Header, data []byte) (_ []byte, ok bool, err error) {
	v := h.Get(hdrPart)
	if v == "" {
		return data, true, nil
	}
	i, n, ok := wire.ParsePart(v)
	if !ok {
		return nil, true, fmt.Errorf("%w: header %s: %.32q is not <i>/<n>", errParts, hdrPart, v)
	}
	if i < n {
		return nil, false, nil
	}
	data, err = join(ctx, get, seq, n, data, func(m *jetstream.RawStreamMsg, i int) bool {
		return m.Subject == subject && m.Header.Get(hdrPart) == wire.PartName(i, n) &&
			m.Header.Get(hdrEpoch) == h.Get(hdrEpoch) && m.Header.Get(hdrSeq) == h.Get(hdrSeq) && m.Header.Get(hdrLane) == h.Get(hdrLane)
	})
	return data, true, err
}
