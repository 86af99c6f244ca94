package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/agent/client"
)

func TestExecute(t *testing.T) {
	m := client.Command{ID: "c1", Subject: "valve.set", Payload: []byte("open"), Deliveries: 2}
	for _, c := range []struct{ run, result, reason string }{
		{`cat; echo " $FIELDPOST_COMMAND_ID $FIELDPOST_COMMAND_SUBJECT $FIELDPOST_COMMAND_DELIVERIES"`, "open c1 valve.set 2\n", ""},
		{`exec true`, "", ""}, // does not read its input
		{`echo ignored; printf 'a\nb' >&2; exit 3`, "", "exit status 3: a\nb"},
		{`exit 1`, "", "exit status 1"},
		{`kill -9 $$`, "", "signal: killed"},
		{`head -c 1000 /dev/zero | tr '\0' x >&2; exit 1`, "", "exit status 1: " + strings.Repeat("x", maxErrors)},
		{`head -c 100000 /dev/zero | tr '\0' x`, strings.Repeat("x", maxOutput-len(cutNote)) + cutNote, ""},
		{`sleep 60 & wait`, "", "not done within 50ms"},
	} {
		var log bytes.Buffer
		x := executor{run: c.run, log: &log}
		if strings.HasPrefix(c.run, "sleep") {
			x.timeout = 50 * time.Millisecond
		}
		result, err := x.handle(context.Background(), m)
		reason := ""
		if err != nil {
			reason = err.Error()
		}
		if string(result) != c.result || reason != c.reason {
			t.Errorf("%s: %.80q, %q; want %.80q, %q", c.run, result, reason, c.result, c.reason)
		}
		if told := strings.Contains(log.String(), "command c1, valve.set: "); told != (err != nil) {
			t.Errorf("%s: log %q", c.run, log.String())
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := (executor{run: "sleep 60", log: &bytes.Buffer{}}).handle(ctx, m); err == nil || errors.Is(err, client.ErrTerminate) {
		t.Errorf("ended: %v", err)
	}
}
