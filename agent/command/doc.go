// Package command is the device's memory of commands, and hands them to
// programs.
//
// It guarantees, across kill -9, power cuts, reconnects and a stream that was
// made anew at the hub:
//   - A command that the hub was told is here is handed to programs whose filter
//     takes it, again and again, until one acks or terminates it, it was handed
//     out max_deliver times, its time to live is over or its sender takes it back.
//     It is never handed out after that, however often the hub sends it.
//   - Whoever is answered that a command is settled can forget it; so can the hub
//     what it was told. Both are told only what is durable.
//   - Commands are handed out first in the order in which they were sent. One that
//     is not settled holds back all later ones of its subject.
//   - Time to live is counted by a clock that nobody can set. A command that a
//     program has when its time is over, or when it is cancelled, is given up when
//     the lease ends without an ack: the ack wins.
//   - A damaged log is set aside with a report; what is readable of it goes on. A
//     disk that fails stops commands, nothing else, until it works again.
//   - Memory does not depend on payloads and results; what waits for programs,
//     results that wait for the hub, and ids that are remembered are bounded.
//
// Reading order: store.go (what it is), exchange.go (what is said to the hub and
// what comes of it), lend.go (leases); below, record.go and log.go (the file,
// FORMAT.md), held.go and remember.go (what the records come to), recover.go
// (opening, writing anew).
package command
