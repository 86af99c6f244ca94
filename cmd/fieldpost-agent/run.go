package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/agent"
	"github.com/fieldpost/fieldpost/cmd/internal/cli"
	"github.com/fieldpost/fieldpost/cmd/internal/conf"
)

func runCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "run the agent in the foreground",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			file, cfg, origins, err := loadKeyed(cli.Source(c))
			if err != nil {
				return cli.Exit(cli.BadConfig, err)
			}
			limitMemory()
			cfg.Log, cfg.LevelVar = cli.LeveledLogger(c.ErrOrStderr(), file.Log)
			cfg.Overlay = func(object []byte) (agent.Config, error) { return overlaid(file, object) }
			ctx, stop := cli.Signals(c.ErrOrStderr())
			defer stop()
			if origins["socket.path"] == "user" {
				if err := privateFolder(filepath.Dir(cfg.Socket.Path)); err != nil {
					return err
				}
			}
			a, err := agent.New(cfg)
			if err != nil {
				return runError(err, origins)
			}
			cfg.Log.Info("starting", "version", cfg.Version, "device", a.Device(), "config", origins.Files(),
				"data_dir", cfg.DataDir, "hub", redacted(file.Hub.URLs))
			var lean sync.WaitGroup
			lean.Go(func() { stayLean(ctx, a.Trim) })
			err = a.Run(ctx)
			stop()
			lean.Wait()
			return runError(err, origins)
		},
	}
}

func runError(err error, origins conf.Origins) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, agent.ErrConfig):
		return cli.Exit(cli.BadConfig, conf.Place(err, origins))
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w; run as a user who may, or set data_dir and socket.path", err)
	}
	return err
}

// privateFolder makes a folder in which nobody else can put a socket in place
// of ours; one that another user made first is refused.
func privateFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("socket folder: %w", err)
	}
	return checkOwner(dir)
}

func redacted(urls []string) []string {
	out := make([]string, len(urls))
	for i, u := range urls {
		out[i] = conf.RedactURL(u)
	}
	return out
}
