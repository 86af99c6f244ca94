// Command fieldpost-hub stores what agents deliver, exactly once, and offers it
// to back ends as ordinary JetStream streams.
//
// Reading order: main.go (the verbs), config.go (from hub.yaml to hub.Config),
// run.go (the hub itself), ask.go (how the other verbs reach it), status.go,
// devices.go, send.go, commands.go, desired.go, routes.go, tail.go, import.go, dead.go, trace.go,
// audit.go, backup.go.
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
	return cli.Run(root(), args, in, out, errOut)
}

func root() *cobra.Command {
	c := &cobra.Command{
		Use:   "fieldpost-hub",
		Short: "where the messages of all devices arrive",
		Long: `fieldpost-hub stores what agents deliver, exactly once and in order, and offers it to
back ends as ordinary JetStream streams of the NATS server inside it.

  fieldpost-hub run                   # no file needed: see config example
  fieldpost-hub tail 'edge.>'         # or any NATS client: nats sub 'edge.>'
  fieldpost-hub devices list`,
	}
	cli.ConfigFlag(c, conf.HubFile)
	c.AddCommand(runCommand(), devicesCommand(), tailCommand(), statusCommand(), routesCommand(), importCommand(), deadCommand(), traceCommand(), auditCommand(), sendCommand(), commandsCommand(), desiredCommand(), backupCommand(), restoreCommand(),
		cli.ConfigCommand(configuration()), cli.VersionCommand(cli.Version(version)))
	return c
}
