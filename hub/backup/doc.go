// Package backup copies the streams of a hub to files, and back into an empty
// JetStream: another server, or a cluster with other replicas.
//
// It guarantees that sequences, times, headers, gaps, durable consumers and what
// they have acked are the same afterwards; that a folder without a manifest, or
// one that does not match it, is refused before anything is written; that a
// restore writes to no stream that holds something which it did not put there
// itself; that no hub starts on half a restore; that a restore which was
// interrupted goes on with what is missing; and that both are refused while a
// hub works, as far as that can be seen.
//
// Reading order: manifest.go (what a backup is), archive.go (what JetStream puts
// into a file), quiet.go (is a hub at work), save.go and snapshot.go (streams to
// files), check.go, plan.go, marker.go, restore.go, send.go and verify.go (files
// to streams).
package backup
