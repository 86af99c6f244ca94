package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Names in the folder, and the format that is written.
const (
	fileName  = "desired.json"
	tempName  = fileName + ".tmp"
	asideName = fileName + ".bad" // a damaged one; an earlier one is replaced
	format    = 1
)

// points are the labelled steps; the name says what is about to be done.
var points = []string{"desired:write", "desired:sync", "desired:rename", "desired:folder"}

// Points lists the labelled steps, for tests and the crash runner.
func Points() []string { return append([]string(nil), points...) }

// fileJSON is desired.json. The checksum is that of the bytes of kept.
type fileJSON struct {
	Format int             `json:"format"`
	CRC    uint32          `json:"crc32c"`
	Kept   json.RawMessage `json:"kept"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDamaged is wrapped by what is wrong with the contents of a file.
var errDamaged = errors.New("cannot be used")

func decode(data []byte) (k Kept, err error) {
	var f fileJSON
	if err := json.Unmarshal(data, &f); err != nil {
		return k, fmt.Errorf("%w: %w", errDamaged, err)
	}
	switch {
	case f.Format != format:
		return k, fmt.Errorf("%w: it has format %d, this agent knows %d", errDamaged, f.Format, format)
	case crc32.Checksum(f.Kept, castagnoli) != f.CRC:
		return k, fmt.Errorf("%w: the checksum is wrong", errDamaged)
	}
	if err := json.Unmarshal(f.Kept, &k); err != nil {
		return Kept{}, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return k, nil
}

func encode(k Kept) ([]byte, error) {
	kept, err := plain(k)
	if err != nil {
		return nil, err
	}
	kept = bytes.TrimSuffix(kept, []byte("\n"))
	return plain(fileJSON{format, crc32.Checksum(kept, castagnoli), kept})
}

// plain is v as a line of JSON, in which <, > and & are themselves.
func plain(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return out.Bytes(), err
}

// load reads what is kept; without a file, nothing is. A file that cannot be
// used is set aside, and the error says so.
func load(dir string) (Kept, error) {
	name := filepath.Join(dir, fileName)
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Kept{}, nil
	}
	if err != nil {
		return Kept{}, err
	}
	k, err := decode(data)
	if err != nil {
		err = fmt.Errorf("%s %w; it is now %s", name, err, asideName)
		return Kept{}, errors.Join(err, os.Rename(name, filepath.Join(dir, asideName)))
	}
	return k, nil
}

// save makes k durable. After an error either the file of before or the new one
// is there, whole.
func save(dir string, k Kept, fault func(point string) error) error {
	data, err := encode(k)
	if err != nil {
		return err
	}
	temp := filepath.Join(dir, tempName)
	if err := writeSynced(temp, data, fault); err != nil {
		return err
	}
	if err := fault("desired:rename"); err != nil {
		return err
	}
	if err := os.Rename(temp, filepath.Join(dir, fileName)); err != nil {
		return err
	}
	if err := fault("desired:folder"); err != nil {
		return err
	}
	return syncDir(dir)
}

func writeSynced(name string, data []byte, fault func(point string) error) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err = fault("desired:write"); err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = fault("desired:sync")
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // folders cannot be synced there
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
