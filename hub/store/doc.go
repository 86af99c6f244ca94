// Package store is JetStream as the hub uses it: the embedded server or an
// external cluster, the streams, atomic batches and reads from the leader.
//
// It guarantees that a batch is stored whole or not at all as far as any answer
// says; that an answer means durable (the embedded server syncs before it
// answers); that a missing or unclear answer is ErrUnknownOutcome and never
// taken for a failure; that Last, Get and Info read from the stream's leader;
// that a Reader never shows a batch whose commit is not complete; and that a
// stream which Fieldpost did not create is never written to.
//
// Reading order: config.go, server.go and lock_*.go (the embedded server),
// store.go (open and close), failed.go (the embedded server has failed), streams.go,
// dead.go, commands.go, desired.go and check.go (what exists), move.go and sync_*.go (what a backup and a
// restore need), batch.go (writing), read.go (single reads from the leader),
// reader.go (reading a stream in order).
package store
