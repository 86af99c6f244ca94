package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
	"github.com/fieldpost/fieldpost/hub/admin"
)

func importCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "import FILE|-",
		Short: "store what a device's backlog file holds",
		Long: `A device that cannot reach its hub can have its backlog carried: fieldpost-agent spool
export writes it to a file, import stores it here, exactly once and in order, as if it had
come over the link. What this hub has already is skipped, so a file may be imported twice,
or while its device is connected. When the device connects again, it learns what is here,
and neither sends nor keeps it any longer.`,
		Example: `  fieldpost-hub import /media/usb/press-7.fpx
  ssh press-7 fieldpost-agent spool export - | fieldpost-hub import -`,
		Args: cobra.ExactArgs(1),
		RunE: importFile,
	}
	c.Flags().Bool("force", false, "take the file of a device that belongs to another hub; if it still goes to that one, both have the messages")
	addressFlag(c)
	return c
}

func importFile(c *cobra.Command, args []string) error {
	force, err := c.Flags().GetBool("force")
	if err != nil {
		return err
	}
	file, size := c.InOrStdin(), int64(0)
	if args[0] != "-" {
		f, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		} else if err == nil && info.IsDir() {
			return cli.Usagef("%s is a folder; name the file in it", args[0])
		}
		file = f
	} else if cli.Terminal(file) {
		return cli.Usagef("standard input is a terminal; name a file, or pipe one")
	}
	return ask(c, func(ctx context.Context, a *admin.Client) error {
		p := cli.NewMeter(c.ErrOrStderr(), "import", size)
		in := &source{r: io.TeeReader(file, p)}
		out, err := a.Import(ctx, in, force)
		p.End()
		switch {
		case in.err != nil:
			return fmt.Errorf("reading %s: %w; what was read is stored, import the file again", args[0], in.err)
		case ctx.Err() != nil:
			return cli.Exit(cli.Temporary, errors.New("interrupted; what was sent is stored, import the file again for the rest"))
		case err != nil && !errors.As(err, new(*admin.Problem)):
			return cli.Exit(cli.Temporary, fmt.Errorf("%w; what was sent before is stored, import the file again", err))
		case err != nil:
			return err
		}
		return cli.Print(c, out, func(w io.Writer) { writeImported(w, out) })
	})
}

// source remembers why the file could not be read.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

func writeImported(w io.Writer, r admin.Imported) {
	fmt.Fprintf(w, "%s: %s messages stored, %s were here already", r.Device, cli.Count(r.Stored.Messages), cli.Count(r.Already.Messages))
	if n := r.Stored.Gone + r.Already.Gone; n > 0 {
		fmt.Fprintf(w, "; %s were removed on the device before", cli.Count(n))
	}
	fmt.Fprintf(w, " (exported %s, %s)\n", cli.Ago(time.Now(), r.Exported), cli.Bytes(int64(r.File.Bytes)))
}
