// Package agent takes messages from local programs over a Unix socket, makes
// them durable in the spool and has the uplink deliver them to the hub.
//
// It guarantees:
//   - A publisher that is answered 200 (or gets a receipt) can forget the
//     message: it survives a power cut. Anything else is answered by an error,
//     never by silence; a batch is stored whole or not at all.
//   - Memory is bounded whatever local programs do: bodies together by
//     socket.max_inflight, connections by number, waiting by time.
//   - On stop, what was accepted is finished and answered before the spool closes.
//
// Reading order, along a message's way: config.go, agent.go (lifecycle), join.go
// (spool and uplink), linkpolicy.go (what the link may be used for), gate.go (who
// may use the spool, and until when), listen.go (the socket), conn.go (HTTP or frames?). Over HTTP: http.go (routes, bodies),
// publish.go (one message), ndjson.go, stream.go and line.go (many). Over frames:
// frames.go (a connection), chunk.go and freelist.go (its memory), group.go (publishes
// that share an answer). Then submit.go (to the spool), wait.go and tap.go (what came of it),
// commands.go and desired.go (what comes from the hub; agent/command and agent/settings keep it),
// status.go, metrics.go, problem.go (how errors are told), spooltools.go and
// spoolstream.go (what an operator does), folder.go (the same without an agent) and budget.go.
package agent
