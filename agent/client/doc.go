// Package client publishes to the Fieldpost agent of this host, and carries out
// commands for it.
//
// It guarantees that a Receipt means what the agent promises (unless weaker was
// asked for, the message survives a power cut), that messages of one Client
// reach the agent in the order in which they were handed over, and that every
// message gets exactly one answer: a receipt, a refusal, or, when the connection
// breaks, an error with CodeUnknown. After that one a message may or may not have
// been stored: publish it again with the same ID, and it is stored once.
//
// It guarantees that a command is acked only after its handler has returned
// without an error, and that in one subscription no two handlers run for the same
// command at once. A command can be delivered more than once, always under its id.
//
// A Client does not reconnect: a program that wants to go on dials again, and
// decides by itself what to do about what is unknown. Subscribe and WatchDesired do
// reconnect.
//
// Reading order: message.go, client.go (dial, publish), pending.go (what is not
// answered), commands.go, subscription.go and desired.go (over HTTP, on the same socket). FRAMES.md is
// the protocol of publishing.
package client
