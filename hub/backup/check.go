package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Check reads every file of a backup to its end and compares it with the
// manifest, before anything is written anywhere. progress is given what is read.
func Check(ctx context.Context, dir string, progress io.Writer) (Manifest, error) {
	m, err := ReadManifest(dir)
	if err != nil {
		return m, err
	}
	for _, s := range m.Streams {
		if err := checkFile(ctx, filepath.Join(dir, s.File), s, progress); err != nil {
			return m, err
		}
	}
	return m, nil
}

func checkFile(ctx context.Context, path string, s Stream, progress io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("backup: %w; use another backup", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return fmt.Errorf("backup: %w", err)
	case info.Size() != s.Size:
		return fmt.Errorf("%w: %s has %d bytes, not %d; use another backup", ErrDamaged, path, info.Size(), s.Size)
	}
	sum := sha256.New()
	all := io.TeeReader(&stoppable{ctx, f}, io.MultiWriter(sum, progress))
	c, scanErr := scan(all)
	if _, err := io.Copy(io.Discard, all); err != nil { // what the scan has left
		return fmt.Errorf("backup: %s: %w", path, err)
	}
	switch {
	case hex.EncodeToString(sum.Sum(nil)) != s.SHA256:
		return fmt.Errorf("%w: %s does not match the checksum in the manifest; use another backup", ErrDamaged, path)
	case scanErr != nil:
		return fmt.Errorf("%w: %s: %w; use another backup", ErrDamaged, path, scanErr)
	case c.messages != s.Messages || c.state.Last != s.Last || c.largest != s.Largest || !slices.Equal(c.consumers, s.Consumers):
		return fmt.Errorf("%w: %s does not hold what the manifest says; use another backup", ErrDamaged, path)
	}
	return nil
}

// stoppable is a reader that ends with its context.
type stoppable struct {
	ctx context.Context
	r   io.Reader
}

func (s *stoppable) Read(b []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	n, err := s.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("reading: %w", err)
	}
	return n, err
}
