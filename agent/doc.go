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
// Reading order, along a message's way: config.go, agent.go (lifecycle),
// listen.go (the socket), conn.go (HTTP or frames?), http.go (routes),
// publish.go and ndjson.go (requests), frames.go (the pipelined protocol),
// submit.go (to the spool), wait.go and tap.go (what came of it), status.go,
// problem.go (how errors are told), metrics.go.
package agent
