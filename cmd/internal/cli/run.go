package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Run executes root and returns the exit code. root.RunE is not needed.
func Run(root *cobra.Command, args []string, in io.Reader, out, errOut io.Writer) int {
	started := false // an error before that is a mistake in the call
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentFlags().Bool("json", false, "print results as JSON")
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	groups(root)
	cmd, err := root.ExecuteC()
	var exit *ExitError
	switch {
	case err == nil || errors.Is(err, syscall.EPIPE): // the reader of our output has seen enough
		return OK
	case !started && !errors.As(err, &exit):
		err = Usagef("%w", err)
	}
	fmt.Fprintf(errOut, "%s: %v\n", root.Name(), err)
	if c := code(err); c != Usage {
		return c
	}
	fmt.Fprintf(errOut, "usage: %s\n%s --help says more\n", cmd.UseLine(), cmd.CommandPath())
	return Usage
}

// groups makes commands that only hold others refuse to be called alone.
func groups(c *cobra.Command) {
	for _, sub := range c.Commands() {
		groups(sub)
	}
	if c.HasSubCommands() && !c.Runnable() {
		c.Args = cobra.ArbitraryArgs
		c.RunE = func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return Usagef("unknown command %q%s", args[0], didYouMean(c, args[0]))
			}
			var names []string
			for _, sub := range c.Commands() {
				if sub.IsAvailableCommand() {
					names = append(names, sub.Name())
				}
			}
			return Usagef("say what to do: %s", strings.Join(names, ", "))
		}
	}
}

func didYouMean(c *cobra.Command, got string) string {
	c.SuggestionsMinimumDistance = 2
	if s := c.SuggestionsFor(got); len(s) > 0 {
		return "; did you mean " + strings.Join(s, " or ") + "?"
	}
	return ""
}
