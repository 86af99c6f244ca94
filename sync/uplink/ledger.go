package uplink

import "github.com/fieldpost/fieldpost/sync/wire"

// Verdict is what the ledger rules say of one block.
type Verdict uint8

// The verdicts.
const (
	Store    Verdict = iota // nothing of it is received: store it under the guard
	Received                // all of it is received: ack it, store nothing
	Partial                 // part of it is received: never stored; end the session, the agent recuts
	Early                   // fifo: something before it is neither received nor void
)

// Judge applies the ledger rules to a block, given the received set of its
// flow. It is the one place where a duplicate is recognised.
func Judge(received wire.Ranges, h *wire.Header, fifo bool) Verdict {
	r := h.Range()
	switch {
	case received.Contains(r):
		return Received
	case received.Overlaps(r):
		return Partial
	case fifo && h.First != next(received, h.Base):
		return Early
	}
	return Store
}

// next is the first sequence from base on that is not received.
func next(received wire.Ranges, base uint64) uint64 {
	for _, r := range received {
		if r.First <= base && base <= r.Last {
			return r.Last + 1
		}
	}
	return base
}
