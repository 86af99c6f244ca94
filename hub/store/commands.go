package store

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Commands to devices.
const (
	Commands       = "COMMANDS"           // what is not settled, on the one subject of its device
	CommandsBucket = "fieldpost_commands" // what is known of each
	CommandsIndex  = "KV_" + CommandsBucket
)

// CommandsAge is how long what is known of a command stays after its last change.
const CommandsAge = 31 * 24 * time.Hour

// CommandsShare is by what the room is divided for COMMANDS; the bucket has the
// rest. The smallest command takes some 290 bytes and its record 400: so the
// records of all that is not settled fill half of the bucket at most.
const CommandsShare = 3

// commandStreams are COMMANDS and its bucket, which share the room. A full
// COMMANDS takes no more; of a full bucket the oldest records go, which hub/commands
// sees to be those of settled commands.
func commandStreams(l Layout) []jetstream.StreamConfig {
	records := bucket(CommandsBucket, "Fieldpost: states of commands")
	records.MaxBytes, records.MaxAge, records.Discard = l.CommandsMaxBytes-l.CommandsMaxBytes/CommandsShare, CommandsAge, jetstream.DiscardOld
	records.AllowAtomicPublish, records.AllowDirect = true, true
	return []jetstream.StreamConfig{
		{
			Name: Commands, Description: "Fieldpost: commands that are not settled; only the hub writes and removes",
			Subjects: []string{"fp.cmd.*"}, MaxBytes: l.CommandsMaxBytes - records.MaxBytes,
			MaxMsgsPerSubject: int64(max(l.CommandsMaxPending, 1)), Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, AllowDirect: true,
			// The device is told that there is something, not what: it asks for that.
			RePublish: &jetstream.RePublish{Source: "fp.cmd.*", Destination: "fp.wake.{{wildcard(1)}}", HeadersOnly: true},
		},
		records,
	}
}

// hasIncarnation reports whether others remember positions in a stream, so that
// it has to be known again.
func hasIncarnation(stream string) bool {
	return stream == Blocks || stream == Commands || stream == DesiredIndex
}
