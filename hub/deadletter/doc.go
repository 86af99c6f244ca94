// Package deadletter puts messages whose consumer gave up into DEAD, and offers
// them once more when somebody asks for it.
//
// It guarantees that a message which a consumer of a route's stream, or of
// RETRY, has used up its deliveries for, or has terminated, is in DEAD exactly
// once per stream, sequence and consumer, whichever instance dies at whatever
// moment, and also if no instance was running then: from the server's advisory
// on, which a stream of our own keeps. What the server removes from a stream
// before it was settled is nobody's giving up, and makes no letter. It
// guarantees that a retry is in RETRY at most once while RETRY still keeps it,
// that a letter leaves DEAD only after it is in RETRY or was purged, and that a
// full store delays and loses nothing before the advisories are full.
//
// Two facts carry this, and no clock does. Before a message is written, its
// entry in the index says who writes it and behind which sequence of the target;
// so whoever comes later knows what to look for and where. And every batch is
// guarded by the target's last sequence; so nobody writes what he could not see.
//
// Reading order, pure: advisory.go (what the server says), letter.go (a message
// of DEAD), again.go (a message of RETRY). The driver: config.go, collect.go
// (from advisories to letters), once.go (written exactly once), list.go (what
// DEAD holds), command.go (commands that nobody has done), remove.go (retry and purge).
package deadletter
