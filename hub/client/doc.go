// Package client reads a hub's streams for back ends.
//
// It guarantees that every message (or block) that a group is to read is handed
// to a handler until one has returned nil or ErrTerminate, or MaxDeliver is
// reached: at least once, however often processes, connections and servers die.
// Exactly once is the stream itself; a program that stores Message.Epoch, Lane
// and Seq with what it did recognises a redelivery. While the processes of a
// group and their connections live, no message is in two handlers at a time, and
// in one process never. An ack is confirmed by the server before it counts as
// done, and said again until then; a message whose ack stays unconfirmed for the
// whole ack wait (the server was away for so long) may come again.
//
// A handler may take as long as it needs: the server is told that the message is
// being worked on. Order is the stream's as long as one process handles one
// message at a time and none fails; it is nobody's otherwise, and Epoch, Lane and
// Seq tell what came first.
//
// Reconnects, leader changes and restarts of the server end no call. A call ends
// with its context (nil), with Close (ErrClosed), or when somebody removes the
// group: then its handlers have returned, and what was fetched and not handled
// was given back to the group at once. That counts as a delivery, as a crash does.
//
// What a call holds is bounded by MaxInFlight: that many messages in handlers and
// about as many behind them.
//
// Reading order: client.go (connect, close), group.go (the durable consumer),
// pull.go (fetch and hand out), settle.go (acks and naks), message.go and
// parts.go (what a message is), consume.go (messages, and retries of dead
// letters); block.go, lost.go and batch.go (packed blocks); replay.go; devices.go and
// command.go, over HTTP.
package client
