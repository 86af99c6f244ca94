package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Version is what the linker was told, else what the Go tool recorded.
func Version(linked string) string {
	if linked != "" {
		return linked
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "dev-" + s.Value[:12]
		}
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	return "dev"
}

type versionResult struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// VersionCommand prints the version.
func VersionCommand(version string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v := versionResult{version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return Print(c, v, func(w io.Writer) {
				fmt.Fprintf(w, "%s %s (%s, %s)\n", c.Root().Name(), v.Version, v.Go, v.Platform)
			})
		},
	}
}
