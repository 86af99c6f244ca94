// Package ingest takes blocks from devices into the ledger.
//
// It guarantees that a block is acked only once the ledger holds it durably,
// that it is stored at most once whatever dies, however many instances take in
// one device's blocks at the same time and however late a frame comes, and that
// no device can do more than have its own sessions ended: what devices send is
// bounded, checked, and never decides where an answer goes. A file that is
// imported takes the same way.
//
// The rules are the receiver of sync/uplink, which has no goroutine and does no
// I/O; here it is driven.
//
// Reading order: config.go (what it needs), ingest.go (Run, and how messages
// reach the receiver), act.go (what the receiver asks for), ledger.go (batches
// and reads), report.go (counting and logging); local.go and import.go (files).
package ingest
