// Package downlink brings commands from the hub to the device, and reports what
// became of them.
//
// It guarantees that the hub is never told of a command, nor asked for those
// behind it, before the store has it durably; that one request is under way at a
// time, fewer than 20 a second; that a hub which does not answer, or knows no
// commands, costs a request now and then and never the session; and that nothing
// is asked for while there is nothing new, but for one look in 5 minutes. In
// class metered that is one in an hour, about 0.6 KB each with its answer and the
// headers of NATS and TCP: less than 0.5 MB a month.
//
// Reading order: core.go (when to ask), driver.go (asking).
package downlink
