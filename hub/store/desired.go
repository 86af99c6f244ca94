package store

import "github.com/nats-io/nats.go/jetstream"

// Desired settings of devices.
const (
	DesiredBucket = "fieldpost_desired" // what was set, and what devices report of it
	DesiredIndex  = "KV_" + DesiredBucket
)

// desiredStream is the bucket under desired settings. It reserves no room: the hub
// bounds what is set, and of each device that it knows there is one report. What
// was removed leaves a mark, which the server takes away after a while.
func desiredStream() jetstream.StreamConfig {
	cfg := bucket(DesiredBucket, "Fieldpost: desired settings of devices")
	cfg.AllowDirect, cfg.AllowMsgTTL = true, true
	return cfg
}
