package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
	"github.com/fieldpost/fieldpost/sync/wire"
)

func spoolExportCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "export FILE|-",
		Short: "write what waits to a file that a person can carry to the hub",
		Long: `export writes everything that the hub has not acknowledged to one file. Nothing leaves the
spool by it. fieldpost-hub import takes the file, exactly once and in order; when the device
reaches the hub again, it learns what is there and does not send it a second time.
The file is not encrypted, even if the spool is.`,
		Example: `  fieldpost-agent spool export /media/usb/press-7.fpx
  fieldpost-agent spool export - | ssh hub fieldpost-hub import -`,
		Args: cobra.ExactArgs(1),
		RunE: exportSpool,
	}
	laneFlag(c)
	c.Flags().Bool("force", false, "replace FILE if it is there")
	socketFlag(c)
	return c
}

// exported is what export prints.
type exported struct {
	File   string `json:"file"`
	Device string `json:"device"`
	HubID  string `json:"hub_id,omitempty"`
	Flows  int    `json:"flows"`
	wire.ExportTotals
}

func exportSpool(c *cobra.Command, args []string) error {
	q, err := laneQuery(c)
	if err != nil {
		return err
	}
	force, err := c.Flags().GetBool("force")
	if err != nil {
		return err
	}
	if args[0] == "-" {
		if cli.Terminal(c.OutOrStdout()) {
			return cli.Usagef("standard output is a terminal; name a file, or pipe it")
		}
	} else if err := mayWrite(args[0], force); err != nil {
		return err
	}
	return withSpool(c, false, func(ctx context.Context, a *api) error {
		resp, err := a.request(ctx, "GET", "/v1/spool/export?"+q.Encode(), nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		p := cli.NewMeter(c.ErrOrStderr(), "export", 0)
		defer p.End()
		if args[0] == "-" {
			out, err := a.copyExport(resp, io.MultiWriter(c.OutOrStdout(), p))
			if err != nil {
				return err
			}
			p.End()
			writeExported(c.ErrOrStderr(), "standard output", out)
			return nil
		}
		out, err := a.exportFile(resp, args[0], p)
		if err != nil {
			return err
		}
		p.End()
		return cli.Print(c, out, func(w io.Writer) { writeExported(w, args[0], out) })
	})
}

func writeExported(w io.Writer, to string, out exported) {
	fmt.Fprintf(w, "%s messages of %s (%s) written to %s", cli.Count(out.Messages), out.Device, cli.Bytes(int64(out.Bytes)), to)
	if out.Gone > 0 {
		fmt.Fprintf(w, ", and that %s were removed", cli.Count(out.Gone))
	}
	fmt.Fprintln(w, "; now: fieldpost-hub import")
}

// mayWrite refuses to replace what is there.
func mayWrite(path string, force bool) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return cli.Usagef("%s is a folder; name a file in it, such as %s", path, filepath.Join(path, "backlog.fpx"))
	case !info.Mode().IsRegular():
		return cli.Usagef("%s is not a regular file; use - to write to standard output", path)
	case !force:
		return fmt.Errorf("%s is there already; choose another name, or replace it with --force", path)
	}
	return nil
}

// exportFile writes the answer to a file of that name, which is there complete
// and durable, or not at all.
func (a *api) exportFile(resp *http.Response, path string, p io.Writer) (out exported, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".fieldpost-export-*")
	if err != nil {
		return out, fileError(path, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name()) // as good as it can be
			err = fileError(path, err)
		}
	}()
	w := bufio.NewWriterSize(f, 256<<10)
	if out, err = a.copyExport(resp, io.MultiWriter(w, p)); err != nil {
		return out, err
	}
	out.File = path
	if err = errors.Join(w.Flush(), f.Sync(), f.Close()); err != nil {
		return out, err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return out, err
	}
	return out, syncFolder(filepath.Dir(path))
}

// fileError says what a file system lacks.
func fileError(path string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%s: no space left for the file; nothing of it is kept. Use a larger medium, or export one --lane at a time: %w", path, err)
	case errors.Is(err, syscall.EFBIG):
		return fmt.Errorf("%s: this file system takes no file that large (FAT: 4 GiB); nothing of it is kept. Use another one, such as exFAT or ext4, or export one --lane at a time: %w", path, err)
	}
	return err
}

// copyExport copies the answer and reads it while it passes: only a complete
// file is a success.
func (a *api) copyExport(resp *http.Response, w io.Writer) (exported, error) {
	out := exported{File: "-"}
	in := io.TeeReader(resp.Body, w)
	x, err := wire.NewExportReader(in)
	for err == nil {
		_, _, err = x.Next()
	}
	if err != io.EOF {
		return out, a.exportError(resp, err)
	}
	head := x.Head()
	out.Device, out.HubID, out.Flows, out.ExportTotals = head.Device, head.HubID, len(head.Flows), x.Totals()
	return out, nil
}

// exportError prefers the reason that the agent gives.
func (a *api) exportError(resp *http.Response, err error) error {
	if !errors.Is(err, wire.ErrTruncated) {
		return err
	}
	io.Copy(io.Discard, resp.Body) // the trailer follows the body
	var p problem
	if text := resp.Trailer.Get("Fieldpost-Problem"); text != "" && json.Unmarshal([]byte(text), &p) == nil {
		return refusal(p.Code, p.Title, p.Detail)
	}
	return cli.Exit(cli.Temporary, fmt.Errorf("the answer of %s ended early: %w", a.socket, err))
}

// syncFolder makes a rename durable, where the file system can.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}
