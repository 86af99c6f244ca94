// Package link is the transport between an agent and its hub.
//
// It guarantees that messages of one connection arrive in the order sent, that
// none is dropped in the middle of a connection (where NATS would drop, the
// connection ends with an error), that a publisher is held back while the peer
// takes nothing, and that a dead socket never blocks Close. It keeps nothing
// across connections but the addresses of a cluster's servers and which failed
// lately: whoever uses it dials anew and finds out by itself what has arrived.
//
// Reading order: link.go (the interface), nats.go (one connection), dial.go
// (which credentials), servers.go (which server first), race.go (several at
// once), socket.go (back-pressure below NATS).
package link
