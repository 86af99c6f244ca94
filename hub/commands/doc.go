// Package commands is the hub's half of commands: it keeps them until their
// device has them, hands them out, and knows what became of each.
//
// It guarantees that a command which was answered for is handed to its device
// until that has it durably, or ends in a final state; that a final state is
// never left or changed, and delivered never goes back to pending; that the same
// id for the same device is the same command for as long as its record is kept
// (store.CommandsAge after its last change), in whatever order requests and
// reports are repeated and whichever instance dies at whatever moment; that what
// expired or failed is in DEAD exactly once; and that no device costs a consumer,
// or more work than a request of bounded size is worth.
//
// COMMANDS is the truth of what is not settled: a message there without a record
// is a pending command. The record of a command is written before its message
// goes: whoever finds a message whose record is settled removes it. A command is
// noted as offered before it is handed out. From then on the device may have it,
// and only the device can say that it expired or was cancelled, unless it shows by
// what it asks for that it does not have it.
//
// The protocol is in sync/wire/PROTOCOL.md.
//
// Reading order, pure: record.go (what is known of a command), message.go (a
// command in COMMANDS). Then config.go, bucket.go (records, compared and swapped),
// send.go, find.go, group.go, serve.go (a device asks), report.go (and reports),
// offer.go (what it is handed), settle.go (from a final state to nothing in
// COMMANDS), cancel.go, sweep.go (what expires, and what a crash left), clean.go
// (what stays in a full bucket), list.go (what is shown), wait.go.
package commands
