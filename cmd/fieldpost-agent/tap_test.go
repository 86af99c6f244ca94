package main

import (
	"strings"
	"testing"
)

func TestTapShowsControlCharacters(t *testing.T) {
	const line = `{"subject":"a.b","payload":"red\u001b[31m\tx\ny"}`
	for _, c := range []struct{ flag, want string }{{"", `a.b red\x1b[31m	x\ny` + "\n"}, {"--json", line + "\n"}} {
		var out strings.Builder
		cmd := tapCommand()
		cmd.Flags().Bool("json", c.flag != "", "")
		cmd.SetOut(&out)
		if err := showTapped(cmd, []byte(line)); err != nil || out.String() != c.want {
			t.Errorf("%s: got %q, %v; want %q", c.flag, out.String(), err, c.want)
		}
	}
}
