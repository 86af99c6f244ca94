// Package spool keeps messages on disk until the hub has them.
//
// What it guarantees:
//
//   - A publisher is answered after its messages are durable, all of one Append
//     or none. Nothing can be read before that. Config.MemoryFirst asks for less
//     while the link is up: memory.go says what.
//   - Order of acceptance is order of sequences within a lane. A sequence is
//     assigned once: every run numbers in an epoch of its own, and the numbers of
//     a commit that failed become a void.
//   - A retry with a publisher id is recognised for 10 minutes or 100,000 ids,
//     whichever is less, across crashes, and after delivery too.
//   - What the hub has received leaves as whole segments. Nothing else is ever
//     removed but by ttl, max_age, drop-oldest or a purge, by time that passes and
//     not by a clock that somebody sets; it is counted once by its reason and read
//     as a void or a blank of that reason, like what damage takes. Both are
//     durable before anything acts on them.
//   - The folder never takes more real disk bytes than configured, and opens
//     whatever a crash or damage left in it, at once: what is readable is read
//     once and in order, what was acknowledged and is not readable is counted.
//     A folder that a newer version wrote is refused and not changed.
//   - With a key, no subject, payload or header stands in the clear anywhere in
//     the folder, in what is put aside neither. Without a key that is needed
//     nothing is touched. Sequences, counts, times, the hub's id and hashes of
//     publisher ids are not encrypted, and nothing is signed.
//
// The folder:
//
//	LOCK  RESERVE           one process at a time; blocks given up while a segment opens or closes
//	LAST                    up to where each lane was acknowledged, in case a log loses its end (witness.go)
//	meta                    layout version, epochs, highest sequences, hub id, token (checked.go)
//	seg-000000000017/       a Badger database of blocks; sealed once it holds SEAL (and IDS);
//	                        encrypted if it holds KEY
//	ids/17                  publisher ids of a segment that is gone
//	quarantine/             damaged segments and a report of each
//	trash-… salvage-…       a step that a crash cut off; finished or undone at the next start
//
// Reading order: config.go (what can be set and what comes back), append.go
// (how messages come in), lane.go and gather.go (how they become numbered
// blocks), commit.go (how these become durable), memory.go (or wait for that), store.go and openbadger.go (Badger: options,
// files, syncs), rotate.go and reserve.go (where the next head comes from),
// keeper.go, release.go and seal.go (how a full one is closed), read.go, segment.go (how
// blocks are found), trim.go (how they leave), ids.go and idfile.go (retries),
// meta.go, checked.go (small facts); clock.go (how old a message is), gone.go,
// removal.go (what will never come), rules.go and blank.go (messages removed from
// the middle of blocks), expire.go, drop.go, purge.go (who removes); then what happens after a crash:
// spool.go (Open and Close), look.go (what is there, changing nothing),
// recover.go (what becomes of it), logfile.go, scan.go, logsource.go (our own
// reader of Badger's files), witness.go, loose.go (segments that only it can
// read), quarantine.go; what a person can do: inspector.go (look at an open
// spool), inspect.go (or at a folder, changing nothing), verify.go, reports.go,
// purge.go again; keyring.go and cipher.go (which segment is encrypted
// how). fault.go lists the steps at which tests break things.
package spool
