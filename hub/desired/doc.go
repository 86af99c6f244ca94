// Package desired keeps what is wanted of devices: JSON documents for one device or
// for all that have a label, what a device gets of them, and what it reports.
//
// It guarantees that a document which was answered for is durable, and that no
// other was written between the one that it was made of and itself; that a device
// gets the documents of its own and of its labels, laid over each other by RFC 7396
// in the order in which they were written last (the sequence of the bucket), so
// that member by member the last writer wins, on every instance alike; that a
// device gets nothing before the hub knows its labels, and nothing as long as the
// bucket cannot be read to its end, so that what it has stays; that an agent which
// knows no desired settings gets none; and that no device makes the hub remember
// or write more than one small report, at a bounded rate.
//
// A version is <highest revision>-<hash of the merged document>. The hash alone
// says whether two are the same settings: it changes if, and only if, the merged
// document does, and a device that has them in effect, or on trial, is not sent
// them again when somebody writes the same once more. Only one that has refused
// them is: so a refusal is tried again by setting the same again. A device of which
// nothing is wanted any more gets {}.
//
// An instance whose reading lags does not hand out what is older than what the
// device has: it looks at the leader first. Every instance wakes the devices that
// a change is about when it has read it, so the one that reads it last wakes them
// last, and no wake is lost with the instance that wrote. Devices that are away ask
// when they come. A bucket that somebody deletes is read as soon as it is made anew:
// what was wanted is gone then, and devices get {}.
//
// The protocol is in sync/wire/PROTOCOL.md.
//
// Reading order, pure: document.go (parse, merge, versions), agentpart.go, keys.go.
// Then config.go, table.go (all documents, in memory), set.go (writing), follow.go
// (reading what all instances write), wake.go, answer.go (a device asks), report.go
// (and reports), show.go (what is shown).
package desired
