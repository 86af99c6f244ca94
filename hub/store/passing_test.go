package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestPassing(t *testing.T) {
	for _, err := range []error{
		context.DeadlineExceeded, nats.ErrNoServers, nats.ErrNoResponders,
		&jetstream.APIError{Code: 400, ErrorCode: 10005}, &jetstream.APIError{Code: 503, ErrorCode: 10008},
		&net.DNSError{Err: "no such host", Name: "hub"},
	} {
		if err := fmt.Errorf("store: stream EDGE: %w", explain(err)); !Passing(err) {
			t.Errorf("%v stays", err)
		}
	}
	for _, err := range []error{
		errors.New("x"), ErrForeign, context.Canceled, nats.ErrAuthorization,
		&jetstream.APIError{Code: 500, ErrorCode: 10074}, &jetstream.APIError{Code: 400, ErrorCode: 10065},
		&jetstream.APIError{Code: 500, ErrorCode: codeStorageExceeded},
	} {
		if err := fmt.Errorf("store: stream EDGE: %w", explain(err)); Passing(err) {
			t.Errorf("%v passes", err)
		}
	}
}
