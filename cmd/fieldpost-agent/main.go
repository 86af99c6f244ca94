// Command fieldpost-agent takes messages from local programs, keeps them on
// disk, and forwards them to a hub whenever the link is up.
//
// Reading order: main.go (the verbs), config.go (from agent.yaml to
// agent.Config), keyfile.go, memory.go, run.go (the agent itself), socket.go (how the other verbs find
// and ask it), publish.go, negative.go, lines.go, subscribe.go, execute.go,
// tap.go, status.go, watch.go, drain.go, progress.go, link.go, desired.go, hub.go;
// spool.go (an agent or its folder), spoolshow.go, spoolexport.go, spoolremove.go.
package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
	"github.com/fieldpost/fieldpost/cmd/internal/conf"
)

// version is set by the linker.
var version string

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, in io.Reader, out, errOut io.Writer) int {
	c := root()
	return cli.Run(c, negativeData(c, args), in, out, errOut)
}

func root() *cobra.Command {
	c := &cobra.Command{
		Use:   "fieldpost-agent",
		Short: "the field post office of this device",
		Long: `fieldpost-agent takes messages from programs on this device, makes them durable,
and brings them to the hub, exactly once, whenever the link is up.

  fieldpost-agent run                          # no file needed: see config example
  fieldpost-agent publish sensors.temp 21.5    # from any program, or curl on the socket
  fieldpost-agent status`,
	}
	cli.ConfigFlag(c, conf.AgentFile)
	c.AddCommand(runCommand(), publishCommand(), subscribeCommand(), tapCommand(), statusCommand(), drainCommand(),
		linkCommand(), desiredCommand(), hubCommand(), spoolCommand(), cli.ConfigCommand(configuration()), cli.VersionCommand(cli.Version(version)))
	return c
}
