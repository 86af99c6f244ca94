package uplink

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestLogTellsTransitions(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1_800_000_000, 0)
	q := quieter{log: slog.New(slog.NewTextHandler(&out, nil)), now: func() time.Time { return now }, since: now}
	down := func(why string) Status { return Status{LastError: why} }
	up := Status{Up: true, Hub: "h"}
	lines := func() (msgs []string) {
		for line := range strings.Lines(out.String()) {
			_, rest, _ := strings.Cut(line, "msg=")
			msgs = append(msgs, strings.TrimSpace(rest))
		}
		out.Reset()
		return msgs
	}
	q.link(Status{})
	for range 100 {
		q.link(down("refused"))
	}
	now = now.Add(3 * time.Second)
	q.link(up)
	q.link(up)
	q.link(down("reset"))
	q.link(down("refused"))
	q.say("trouble", errors.New("x"))
	q.say("trouble", errors.New("x"))
	want := []string{
		`"no link yet" error=refused`,
		`"link up" hub=h down_for=3s`,
		`"link down" error=reset up_for=0s`,
		`trouble error=x`,
	}
	if got := lines(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for range 100 { // a flapping link
		q.link(up)
		q.link(down("reset"))
	}
	if n := len(lines()); n > burst {
		t.Errorf("%d lines for a flapping link", n)
	}
	now = now.Add(time.Hour)
	q.link(up)
	if got := lines(); len(got) != 1 || !strings.Contains(got[0], "not_told=1") {
		t.Errorf("after an hour: %q", got)
	}
}
