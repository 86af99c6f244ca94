package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/conf"
)

// Config is a program's configuration as its `config` command needs it.
type Config struct {
	Example []byte
	// Load reads and checks everything; its error is for exit code 78.
	Load func(conf.Source) (cfg any, origins conf.Origins, err error)
	// Warn says what is allowed and yet probably not meant; nil: nothing.
	Warn func(cfg any) []string
	// Check looks at what only the program itself may read, and says what is worth
	// knowing; its error is for exit code 78. nil: nothing.
	Check func(conf.Source) (notes []string, err error)
}

// Source is the configuration that the command was asked to use.
func Source(c *cobra.Command) conf.Source {
	file, err := c.Flags().GetString("config")
	if err != nil {
		file = ""
	}
	return conf.Source{File: file, Environ: os.Environ(), Ordinary: os.Geteuid() != 0}
}

// ConfigFlag adds -c.
func ConfigFlag(c *cobra.Command, usual string) {
	c.PersistentFlags().StringP("config", "c", "", "configuration `file` (default "+usual+", else the places of the current user)")
}

// ConfigCommand is `config check|show|example`.
func ConfigCommand(cfg Config) *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "check, show or write a configuration"}
	c.AddCommand(configCheck(cfg), configShow(cfg), configExample(cfg))
	return c
}

func configCheck(cfg Config) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "read the configuration and say what is wrong with it",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v, origins, err := cfg.Load(Source(c))
			if err != nil {
				return Exit(BadConfig, err)
			}
			var warnings []string
			if cfg.Warn != nil {
				warnings = cfg.Warn(v)
			}
			if cfg.Check != nil {
				notes, err := cfg.Check(Source(c))
				if err != nil {
					return Exit(BadConfig, err)
				}
				warnings = append(warnings, notes...)
			}
			result := struct {
				OK       bool     `json:"ok"`
				Files    []string `json:"files"`
				Warnings []string `json:"warnings,omitempty"`
			}{true, origins.Files(), warnings}
			return Print(c, result, func(w io.Writer) {
				for _, warning := range warnings {
					fmt.Fprintln(w, "note:", warning)
				}
				fmt.Fprintln(w, "ok:", sources(result.Files))
			})
		},
	}
}

func sources(files []string) string {
	switch {
	case len(files) == 0:
		return "defaults only"
	case files[0] == "user": // sorts after names of files and variables
		return "no file; defaults for the current user"
	}
	return strings.Join(files, ", ")
}

func configShow(cfg Config) *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "print the configuration in effect and where each value was set",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v, origins, err := cfg.Load(Source(c))
			if err != nil {
				return Exit(BadConfig, err)
			}
			text, err := conf.Show(v, origins)
			if err != nil {
				return err
			}
			return Print(c, conf.JSON(v, origins), func(w io.Writer) { fmt.Fprintf(w, "%s", text) })
		},
	}
}

func configExample(cfg Config) *cobra.Command {
	return &cobra.Command{
		Use:   "example",
		Short: "print a commented configuration with every key and its default",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			asJSON, err := conf.Example(cfg.Example)
			if err != nil {
				return err
			}
			return Print(c, asJSON, func(w io.Writer) { fmt.Fprintf(w, "%s", cfg.Example) })
		},
	}
}
