package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/fieldpost/fieldpost/agent/client"
	"github.com/fieldpost/fieldpost/cmd/internal/cli"
)

const (
	maxOutput  = 64 << 10 // bytes of standard output that are the result
	maxErrors  = 200      // bytes of the end of standard error that are the reason
	execLinger = 5 * time.Second
	cutNote    = "\n[cut at 64 KiB]"
)

// executor carries commands out with a shell.
type executor struct {
	run     string
	timeout time.Duration // 0: none
	log     io.Writer
	linger  time.Duration // between asking a shell to end and ending it; 0: execLinger
}

// handle runs the shell in a process group of its own, which is ended when ctx or the time is:
// nothing of that group is left then, unlike after a shell that ends by itself.
func (x executor) handle(ctx context.Context, m client.Command) ([]byte, error) {
	if x.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, x.timeout)
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", x.run)
	cmd.Stdin = bytes.NewReader(m.Payload)
	out, errs := &firstBytes{max: maxOutput}, &lastBytes{max: maxErrors}
	cmd.Stdout, cmd.Stderr = out, errs
	cmd.Env = append(os.Environ(), "FIELDPOST_COMMAND_ID="+m.ID, "FIELDPOST_COMMAND_SUBJECT="+m.Subject,
		"FIELDPOST_COMMAND_DELIVERIES="+strconv.Itoa(m.Deliveries))
	if cmd.WaitDelay = x.linger; x.linger == 0 {
		cmd.WaitDelay = execLinger
	}
	end := ownGroup(cmd)
	err := cmd.Run()
	end()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it was done; something that it left behind holds its output
	}
	switch {
	case err == nil:
		return out.result(), nil
	case ctx.Err() != nil && x.timeout > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("not done within %v", x.timeout)
	case ctx.Err() != nil:
		err = errors.New("the subscriber was ended")
	default:
		err = fmt.Errorf("%w%s", err, errs.reason())
	}
	fmt.Fprintf(x.log, "command %s, %s: %s\n", m.ID, cli.Visible(m.Subject), cli.Visible(err.Error()))
	return nil, err
}

// firstBytes keeps what is written first.
type firstBytes struct {
	max int
	b   []byte
	cut bool
}

func (f *firstBytes) Write(p []byte) (int, error) {
	n := min(len(p), f.max-len(f.b))
	f.b, f.cut = append(f.b, p[:n]...), f.cut || n < len(p)
	return len(p), nil
}

func (f *firstBytes) result() []byte {
	if f.cut {
		return append(f.b[:f.max-len(cutNote)], cutNote...)
	}
	return f.b
}

// lastBytes keeps what is written last.
type lastBytes struct {
	max int
	b   []byte
}

func (l *lastBytes) Write(p []byte) (int, error) {
	l.b = append(l.b, p[max(0, len(p)-l.max):]...)
	l.b = l.b[max(0, len(l.b)-l.max):]
	return len(p), nil
}

func (l *lastBytes) reason() string {
	if text := strings.TrimSpace(strings.ToValidUTF8(string(l.b), "")); text != "" {
		return ": " + text
	}
	return ""
}
