// Package unpack turns the ledger's blocks into single messages in the streams
// of the routes, gaps into messages in DEAD, and lets old blocks go.
//
// It guarantees that a route's stream is a projection of the ledger: every
// message that the route table gives it is there exactly once and in the
// ledger's order, whichever instance dies at whatever moment. Two facts carry
// this, and no clock does: the first message of every batch is guarded by the
// stream's last sequence, so that only one writer can succeed at a time; and a
// checkpoint says at which stream sequence everything before a place in the
// ledger was in the stream, so that any writer can count from there. Leases only
// decide who tries.
//
// A route table holds from a sequence of the ledger on. A stream whose routes are
// gone still gets what is older. A back-fill (a walk) takes blocks once more, by
// a younger table, for what the stream did not get; the checkpoint says in one
// write that it has begun, where it is and where the stream goes on after it, so
// that it is a part of the same projection. What no route takes is counted.
//
// A block that cannot be decoded becomes one message in DEAD; a void, and each
// run of blank messages inside a block, one message on dead.gap.<device>, exactly
// once. A block leaves the ledger when it is old enough and every route has it,
// and never takes the received set of its flow with it.
//
// Reading order, pure: route.go (which stream takes a message), project.go (a
// block as messages of a stream), position.go (where a writer resumes). The
// driver: config.go, unpack.go (who runs what), lease.go (who tries), state.go
// and tables.go (checkpoints and route tables), backfill.go and walk.go
// (back-fills), worker.go (one route's life), lost.go (what was removed too
// early), locate.go (where the stream stands), feed.go (read and decode),
// piece.go (blocks of several messages), pump.go and slot.go (batches in flight),
// dead.go, gaps.go, unrouted.go, retain.go and mark.go; received.go (what became of
// one message).
package unpack
