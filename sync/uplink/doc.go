// Package uplink moves blocks from an agent's spool into a hub's ledger.
//
// It guarantees that whatever the spool holds is in the ledger in the end,
// exactly once and in order, however often link, agent or hub die: a block is
// stored only if the ledger rules say so (Judge), the spool is told only what
// the ledger holds, and every session starts from the ledger's received set. A
// link that has fallen silent is found within 30 s while anything waits, and a
// backlog drains as soon as a session is open. Memory is bounded by the
// window and a block for each queue, whatever the backlog.
//
// Both ends are pure state machines without goroutine, clock or I/O, each under
// a driver that owns the goroutines.
//
// Reading order: api.go (what the agent configures), ledger.go (what a
// duplicate is). The agent's end: sender_event.go (what happens to a sender and
// what it asks for), sender.go (its phases), sender_session.go (open, acks,
// silence, ends), sender_lane.go (what the hub lacks), sender_send.go (what goes
// out next), sender_load.go and sender_pack.go (blocks as frames),
// sender_memory.go, cutter.go, sender_window.go, backoff.go; its driver in
// driver.go, driver_conn.go, attach.go, driver_log.go and heartbeat.go. The hub's end:
// receiver.go (events and actions),
// receiver_session.go, receiver_frame.go and receiver_chunk.go (what arrives),
// receiver_flow.go, receiver_batch.go; its driver is hub/ingest.
package uplink
