package client

import "context"

// Command is an instruction for this device.
type Command struct {
	ID      string // the same for every delivery: make effects idempotent by it
	Subject string
	Payload []byte
}

// Handler carries out a command and returns its result. An error has the
// command delivered again.
type Handler func(ctx context.Context, c Command) (result []byte, err error)

// Subscribe hands commands whose subject matches filter to handler, until ctx
// ends. In this version it returns an error with CodeUnavailable.
func (c *Client) Subscribe(ctx context.Context, filter string, handler Handler) error {
	return errorf(CodeUnavailable, "commands are not available in this version")
}
