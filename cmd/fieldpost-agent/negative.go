package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var negative = regexp.MustCompile(`^-(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$`)

// negativeData lets publish take -5 as DATA, which would be a flag otherwise: a
// negative number that follows the subject is moved behind "--".
func negativeData(root *cobra.Command, args []string) []string {
	cmd, _, err := root.Find(args)
	if err != nil || cmd.Name() != "publish" {
		return args
	}
	positional := 0 // the verb itself is the first
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		switch a := args[i]; {
		case positional >= 2 && negative.MatchString(a):
			out := slices.Delete(slices.Clone(args), i, i+1)
			if at := slices.Index(out[i:], "--"); at >= 0 {
				return slices.Insert(out, i+at+1, a)
			}
			return append(out, "--", a)
		case takesNext(cmd, a):
			i++
		case a == "-" || !strings.HasPrefix(a, "-"):
			positional++
		}
	}
	return args
}

// takesNext reports whether a is a flag whose value is the next argument.
func takesNext(cmd *cobra.Command, a string) bool {
	cmd.InheritedFlags() // merges those of the parents
	var f *pflag.Flag
	if name, long := strings.CutPrefix(a, "--"); long {
		f = cmd.Flag(name)
	} else if len(a) == 2 && a[0] == '-' {
		f = cmd.Flags().ShorthandLookup(a[1:])
		if f == nil {
			f = cmd.InheritedFlags().ShorthandLookup(a[1:])
		}
	}
	return f != nil && f.NoOptDefVal == ""
}
