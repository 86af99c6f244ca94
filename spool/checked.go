package spool

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
)

// A checked file is small, replaced as a whole, and carries its name, version
// and checksum in a first line of text:
//
//	fieldpost-spool-seal 1 5d41402a
//	{"parts":…}
//
// The checksum is the CRC-32C of everything after the first line, in hex.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const maxChecked = 16 << 20 // far above the largest; a damaged size must not ask for more

func appendChecked(kind string, version int, body []byte) []byte {
	head := fmt.Sprintf("%s %d %08x\n", kind, version, crc32.Checksum(body, castagnoli))
	return append([]byte(head), body...)
}

// readChecked returns the body. A version above ours is ErrLayout; anything
// else that is wrong is a *CorruptError, an absent file fs.ErrNotExist.
func readChecked(path, kind string, version int) ([]byte, error) {
	if fi, err := os.Stat(path); err != nil {
		return nil, err
	} else if fi.Size() > maxChecked {
		return nil, &CorruptError{Segment: path, Detail: fmt.Sprintf("%d bytes long", fi.Size())}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	line, body, ok := bytes.Cut(data, []byte{'\n'})
	var name string
	var v int
	var sum uint32
	if n, err := fmt.Sscanf(string(line), "%s %d %08x", &name, &v, &sum); !ok || n != 3 || err != nil || name != kind || v < 1 {
		return nil, &CorruptError{Segment: path, Detail: "the first line is not that of a " + kind}
	}
	if got := crc32.Checksum(body, castagnoli); got != sum {
		return nil, &CorruptError{Segment: path, Detail: fmt.Sprintf("checksum is %08x, not %08x", got, sum)}
	}
	if v > version {
		return nil, fmt.Errorf("%w: %s has version %d and this program knows %d; upgrade: install the newer Fieldpost again, or move the folder away to begin with an empty spool",
			ErrLayout, path, v, version)
	}
	return body, nil
}

// replaceFile makes data the durable content of path, or leaves what was there.
// points labels its four steps: write, sync, rename, folder sync.
func (s *Spool) replaceFile(path string, data []byte, points [4]string) error {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	err = s.step(points[0], func() error { _, err := f.Write(data); return err })
	if err == nil {
		err = s.step(points[1], f.Sync)
	}
	if err == nil {
		err = s.step(points[2], func() error { return os.Rename(tmp, path) })
	}
	if err != nil {
		return errors.Join(err, removeIfThere(tmp))
	}
	return s.step(points[3], func() error { return syncDir(filepath.Dir(path)) })
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// syncPath makes the content of one file durable.
func syncPath(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
