package main

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
	"github.com/fieldpost/fieldpost/cmd/internal/conf"
	"github.com/fieldpost/fieldpost/hub"
)

func runCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "run the hub in the foreground",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			file, cfg, origins, err := load(cli.Source(c))
			if err != nil {
				return cli.Exit(cli.BadConfig, err)
			}
			cfg.Log = cli.Logger(c.ErrOrStderr(), file.Log)
			ctx, stop := cli.Signals(c.ErrOrStderr())
			defer stop()
			h, err := hub.New(cfg)
			if err != nil {
				return runError(err, origins)
			}
			cfg.Log.Info("starting", "version", cfg.Version, "config", origins.Files(), "data_dir", cfg.DataDir,
				"nats", cfg.NATS.Listen, "http", cfg.HTTP.Listen)
			var limits sync.WaitGroup
			limits.Go(func() { limitMemory(ctx) })
			err = h.Run(ctx)
			stop()
			limits.Wait()
			return runError(err, origins)
		},
	}
}

func runError(err error, origins conf.Origins) error {
	var key *hub.KeyError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &key):
		return cli.Exit(cli.BadConfig, conf.Place(err, origins))
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w; run as a user who may, or set data_dir", err)
	}
	return err
}
