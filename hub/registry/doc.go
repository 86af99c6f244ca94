// Package registry knows the devices: who is online, how much they still hold,
// and whether one of them came back as a copy of itself.
//
// It only shows. Nothing that is delivered depends on it, and what it loses it
// learns again from sessions and heartbeats. What devices say of themselves is
// bounded and rate-limited; a device costs the bucket at most one write a
// second, and one in five minutes while only its counters change. Several hub
// instances share the bucket: every write is guarded by the revision read, and
// tokens and reports of clones survive a race.
//
// A million devices can be known. One of which nothing is heard takes about 250
// bytes, nothing goes through all of them every second, and a list that takes
// long to read is read behind.
//
// Reading order: token.go (how a copy is recognised), heartbeat.go (what a
// device may say), registry.go (what is known), shelf.go, pack.go and rest.go
// (how it is held), links.go (when it was online), sweep.go (who left), bucket.go
// (what is kept), query.go and rank.go (what is shown).
package registry
