package cli

import (
	"errors"
	"testing"
)

func TestNothingFromOthersReachesTheTerminalAsControl(t *testing.T) {
	for in, want := range map[string]string{
		"21.5 °C\tok \\n":      "21.5 °C\tok \\n",
		"a\nb\r\n":             `a\nb\r\n`,
		"\x1b]0;x\x07\x00\x7f": `\x1b]0;x\x07\x00\x7f`,
		"\u009b31m\u202ex":     `\u009b31m\u202ex`,
		"a\x9bb\uFFFD":         "a\\x9bb\uFFFD",
	} {
		if got := Visible(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestCheckFilter(t *testing.T) {
	for f, good := range map[string]bool{
		">": true, "a.*.b.>": true, "edge.press-7.>": true, "größe.*": true,
		"": false, "a..b": false, "a.>.b": false, "a*": false, "a b": false, "a.\x1b": false, "a.\xff": false, ".": false,
	} {
		err := CheckFilter(f)
		var exit *ExitError
		if (err == nil) != good || err != nil && (!errors.As(err, &exit) || exit.Code != Usage) {
			t.Errorf("%q: %v", f, err)
		}
	}
}
