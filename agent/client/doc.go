// Package client publishes to the Fieldpost agent of this host.
//
// It guarantees that a Receipt means what the agent promises (unless weaker was
// asked for, the message survives a power cut), that messages of one Client
// reach the agent in the order in which they were handed over, and that every
// message gets exactly one answer: a receipt, a refusal, or, when the connection
// breaks, an error with CodeUnknown. After that one a message may or may not have
// been stored: publish it again with the same ID, and it is stored once.
//
// A Client does not reconnect: a program that wants to go on dials again, and
// decides by itself what to do about what is unknown.
//
// Reading order: message.go, client.go (dial, publish), pending.go (what is not
// answered), commands.go. FRAMES.md is the protocol.
package client
