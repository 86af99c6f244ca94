// Package hub is one hub instance: it assembles the streams, what takes blocks
// in, what unpacks them, the registry of devices and the HTTP API.
//
// It guarantees that a configuration which cannot be honoured is refused before
// anything is opened, with the key's name; that two hubs never share a data
// folder; that readiness means that sessions can be opened and every part does
// its work, and names the reason where not; that a part which is not on the ack
// path can fail and come back without touching what is acked; and that Run
// returns only when nothing of it runs any more: first no new work is taken,
// sessions end with a word, what is stored is acked, unpacking leaves a
// checkpoint, and the store closes last.
//
// Reading order: config.go, size.go, validate.go, routes.go and cover.go (what
// can be asked for), hub.go (assembly), maxstore.go (how much disk), changes.go
// (what a new configuration may do to old streams), stages.go and reopen.go (how
// parts run, stop and begin anew), monitor.go, inspect.go, loss.go, devicenotes.go
// and metrics.go (what is seen), request.go, http.go, routesapi.go, tail.go,
// messages.go, lines.go and ack.go (what is shown), dead.go and dead_http.go (what
// consumers gave up), commands.go and commands_http.go (commands to devices),
// trace_http.go (where one message is), audit.go and audit_list.go (who changed what), import.go (files that people carry), move.go (backup and
// restore, without a hub that runs). The shapes of the answers are in hub/admin.
package hub
