package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
	"github.com/fieldpost/fieldpost/hub"
	"github.com/fieldpost/fieldpost/hub/backup"
)

func backupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "backup DIR",
		Short: "write everything that the hub has into a new folder",
		Long: `The hub has to be stopped, of a cluster every instance: devices keep their backlog meanwhile.
backup writes one file for each stream of Fieldpost, with its durable consumers and what they
have acked, and a manifest last: a folder without one is no backup. The streams are found
by the configuration (-c): in data_dir, or in the cluster of nats.urls.

Once a hub runs again, it acknowledges messages that the backup does not have, and devices
drop those: restore a backup only if no hub has run since it was taken, or if there is
nothing newer.

The files are not encrypted; only their owner can read them.`,
		Example: `  systemctl stop fieldpost-hub
  fieldpost-hub backup /srv/backup/hub-1`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return move(c, "backup", args[0], hub.Backup)
		},
	}
}

func restoreCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "restore DIR",
		Short: "put a backup where this configuration's hub will find it",
		Long: `restore creates the streams of a backup as this configuration (-c) wants them: in an empty
data_dir, or in an empty account of the cluster of nats.urls, with nats.replicas and the
max_bytes of this configuration. Sequences, times, consumers and what they have acked are
the same as before. The files are checked before anything is written.

A restore that was interrupted is run again with the same folder, and goes on with what is
missing; until it is complete no hub starts on its streams. The old hub must not run again.`,
		Example: `  fieldpost-hub restore /srv/backup/hub-1 -c /etc/fieldpost/cluster.yaml`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return move(c, "restore", args[0], hub.Restore)
		},
	}
}

// moved is what both print.
type moved struct {
	Folder  string          `json:"folder"`
	HubID   string          `json:"hub_id"`
	Taken   time.Time       `json:"taken"`
	Bytes   int64           `json:"bytes"` // of the files
	Streams []backup.Stream `json:"streams"`
}

// moveMemory makes the embedded server let go of what it has written: without it a
// restore of 2 GB took 1.2 GB of memory, with 200 MiB 0.22.
const moveMemory = 256 << 20

func move(c *cobra.Command, what, dir string, do func(context.Context, hub.Config, string, io.Writer) (backup.Manifest, error)) error {
	file, cfg, origins, err := load(cli.Source(c))
	if err != nil {
		return cli.Exit(cli.BadConfig, err)
	}
	if len(cfg.NATS.URLs) == 0 {
		if err := ownFolder(cfg.DataDir); err != nil {
			return err
		}
	}
	if file.Log.Level == "info" { // what is done is printed
		file.Log.Level = "warn"
	}
	cfg.Log = cli.Logger(c.ErrOrStderr(), file.Log).With(slog.String("verb", what))
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(moveMemory)
	}
	ctx, stop := cli.Signals(c.ErrOrStderr())
	defer stop()
	p := cli.NewMeter(c.ErrOrStderr(), what, 0)
	m, err := do(ctx, cfg, dir, p)
	p.End()
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return cli.Exit(cli.Temporary, fmt.Errorf("interrupted: %w", err))
	case errors.Is(err, backup.ErrHubRuns):
		return cli.Exit(cli.Temporary, err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w; run as the user of the hub", err)
	default:
		return runError(err, origins)
	}
	out := moved{Folder: dir, HubID: m.HubID, Taken: m.Taken, Bytes: m.Bytes(), Streams: m.Streams}
	return cli.Print(c, out, func(w io.Writer) { writeMoved(w, what, out) })
}

func writeMoved(w io.Writer, what string, m moved) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "STREAM\tMESSAGES\tFIRST\tLAST\tCONSUMERS\tBYTES")
	for _, s := range m.Streams {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%s\n", s.Name, cli.Count(s.Messages), s.First, s.Last, len(s.Consumers), cli.Bytes(int64(s.Bytes)))
	}
	t.Flush()
	if what == "backup" {
		fmt.Fprintf(w, "\n%s is complete: %s\n", m.Folder, cli.Bytes(m.Bytes))
	} else {
		fmt.Fprintf(w, "\nrestored and compared with the backup of %s; start the hub\n", m.Taken.Local().Format(time.RFC3339))
	}
}
