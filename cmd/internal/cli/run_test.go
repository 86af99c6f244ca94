package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

func sample() *cobra.Command {
	root := &cobra.Command{Use: "prog"}
	group := &cobra.Command{Use: "group"}
	ret := func(use string, err error) *cobra.Command {
		return &cobra.Command{Use: use, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
			if err != nil {
				return err
			}
			return Print(c, map[string]string{"a": "<b>"}, func(w io.Writer) { fmt.Fprintln(w, "text") })
		}}
	}
	group.AddCommand(ret("inner", nil))
	root.AddCommand(group, ret("good", nil), ret("bad", errors.New("broken")),
		ret("later", Exit(Temporary, fmt.Errorf("wrapped: %w", errors.New("down")))),
		ret("config", Exit(BadConfig, errors.New("file:1:2: x"))), ret("gone", fmt.Errorf("write: %w", syscall.EPIPE)))
	return root
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		out  string
		err  string
	}{
		{"good", OK, "text\n", ""},
		{"good --json", OK, `{"a":"<b>"}` + "\n", ""},
		{"--json good", OK, `{"a":"<b>"}` + "\n", ""},
		{"bad", Failed, "", "prog: broken\n"},
		{"later", Temporary, "", "prog: wrapped: down\n"},
		{"config", BadConfig, "", "prog: file:1:2: x\n"},
		{"gone", OK, "", ""},
		{"good extra", Usage, "", "unknown command \"extra\""},
		{"good --flag", Usage, "", "unknown flag: --flag"},
		{"confg", Usage, "", `unknown command "confg"; did you mean config?`},
		{"", Usage, "", "say what to do: bad, config, gone, good, group, later"},
		{"group", Usage, "", "say what to do: inner"},
		{"group iner", Usage, "", `unknown command "iner"; did you mean inner?`},
		{"group inner", OK, "text\n", ""},
		{"--help", OK, "Usage:", ""},
	} {
		var out, errOut strings.Builder
		code := Run(sample(), strings.Fields(c.args), strings.NewReader(""), &out, &errOut)
		if code != c.code || !strings.Contains(out.String(), c.out) || !strings.Contains(errOut.String(), c.err) {
			t.Errorf("%q exits with %d, says %q and %q; want %d, %q, %q", c.args, code, out.String(), errOut.String(), c.code, c.out, c.err)
		}
	}
}

func TestFiguresForPeople(t *testing.T) {
	for got, want := range map[string]string{
		Bytes(0): "0 B", Bytes(1023): "1023 B", Bytes(1536): "1.5 KiB", Bytes(3 << 40): "3.0 TiB", Bytes(5000 << 40): "5000.0 TiB",
		Count(7): "7", Count(1234): "1,234", Count(1234567): "1,234,567",
		Span(1500 * time.Microsecond): "2ms", Span(252 * time.Second): "4m12s", Span(100 * time.Hour): "4d4h", Span(-1): "0s",
		Span(3*time.Hour + 5*time.Minute): "3h5m",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
