// Package trace tells where one message is, from what the hub durably knows.
//
// It guarantees that every statement follows from the ledger, a stream, a
// consumer or a letter as it was read for this answer, that what does not follow
// is called unknown with the reason, and that one answer costs a bounded number
// of reads: positions are found by bisection, because the ledger and the streams
// are in order, and where only looking through helps, the newest part is looked
// through and named. It changes nothing.
//
// Reading order: trace.go (a message by number), place.go (in which stream),
// consumers.go (who had it), letters.go (who gave it up), id.go (a message by its
// publisher's id), search.go (looking through a stream).
package trace
