package store

import (
	"context"
	"errors"
	"net"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Passing reports whether an error is one of a cluster that is out of reach, that
// is choosing a leader or that misses servers: it may be gone a moment later.
func Passing(err error) bool {
	for _, passing := range []error{
		context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, jetstream.ErrNoStreamResponse,
		nats.ErrNoServers, nats.ErrConnectionClosed, nats.ErrDisconnected, nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded,
		nats.ErrStaleConnection,
	} {
		if errors.Is(err, passing) {
			return true
		}
	}
	if api := new(jetstream.APIError); errors.As(err, &api) {
		switch api.ErrorCode {
		case codeNoPeers,
			10008, // JetStream is temporarily unavailable
			10009, // not the leader
			10041, // raft
			10076, // JetStream is not enabled: it starts
			10118: // the stream is offline
			return true
		}
		return false
	}
	return errors.As(err, new(net.Error))
}
