// Package settings keeps what the hub wants of this device: one JSON object,
// whose member "agent" is the agent's own and whose others are for local programs.
//
// It guarantees, across kill -9 and power cuts:
//   - The hub and programs are told only what is durable. What was in effect is so
//     again after a restart, before the first session.
//   - A document is put into effect as a whole or not at all. What is wrong with one
//     that is refused is said to a person, with the member's name.
//   - A document that changes the link is on trial until the hub was heard with it.
//     If it is not, the settings before are in effect again: after a minute, if they
//     had the link up; after an hour if nobody knows, as after a restart; and at the
//     fourth start of the agent within one trial. The times are monotonic.
//   - A damaged file is set aside: the configuration's values hold, and the hub sends
//     its document again, as the version is unknown then.
//   - A disk that fails keeps no trial from its end: the settings before are in
//     effect at once, and it is reported when it is durable.
//
// It knows no setting: Part is what a document comes to, and puts it into effect.
//
// Reading order: document.go (what is a document), core.go (what becomes of one),
// file.go (desired.json), store.go (driving the core), exchange.go (what is said to
// the hub), programs.go (and to programs).
package settings
