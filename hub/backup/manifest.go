package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fieldpost/fieldpost/hub/store"
)

// manifestName is written last: a folder without it is no backup.
const manifestName = "manifest.json"

// manifestVersion is what this program writes, and the only one that it reads.
const manifestVersion = 1

// Bounds of what is read back.
const (
	maxManifest = 64 << 20
	maxStreams  = 10_000
)

// ErrDamaged means that a backup is not what was written.
var ErrDamaged = errors.New("backup: damaged")

// Manifest says what a backup holds.
type Manifest struct {
	Version  int       `json:"version"`
	ID       string    `json:"id"` // random
	Taken    time.Time `json:"taken"`
	Program  string    `json:"program"` // version of fieldpost-hub
	Server   string    `json:"server"`  // version of nats-server
	Source   string    `json:"source"`  // data folder, or the cluster's URLs
	HubID    string    `json:"hub_id"`
	Streams  []Stream  `json:"streams"`  // in the order in which they were saved
	Checksum string    `json:"checksum"` // of all this, with Checksum empty
}

// Stream is one stream of a backup.
type Stream struct {
	Name      string          `json:"name"`
	File      string          `json:"file"`
	Size      int64           `json:"size"`   // of the file
	SHA256    string          `json:"sha256"` // of the file
	First     uint64          `json:"first_seq"`
	Last      uint64          `json:"last_seq"`
	Messages  uint64          `json:"messages"`
	Bytes     uint64          `json:"bytes"`
	Largest   int64           `json:"largest"` // message in bytes, headers included
	Consumers []Consumer      `json:"consumers,omitempty"`
	Config    json.RawMessage `json:"config"`
	State     json.RawMessage `json:"state"`
}

// Consumer is a durable consumer of a stream, and how far it is.
type Consumer struct {
	Name     string `json:"name"`
	Acked    uint64 `json:"acked"`   // everything up to this stream sequence
	Pending  int    `json:"pending"` // delivered above that, and not acked
	Pushes   bool   `json:"pushes,omitempty"`
	Consumed uint64 `json:"delivered"` // up to this stream sequence
}

// fileName is the file of a stream. The number shows the order, and keeps names
// apart that differ only in case.
func fileName(i int, stream string) string { return fmt.Sprintf("%02d-%s.s2", i+1, stream) }

// sum is the manifest's own checksum.
func (m Manifest) sum() (string, error) {
	m.Checksum = ""
	b, err := json.Marshal(m)
	if err != nil {
		return "", fmt.Errorf("backup: manifest: %w", err)
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:]), nil
}

// write makes the backup complete.
func (m *Manifest) write(dir string) (err error) {
	if m.Checksum, err = m.sum(); err != nil {
		return err
	}
	b, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return fmt.Errorf("backup: manifest: %w", err)
	}
	tmp := filepath.Join(dir, manifestName+".tmp")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("backup: manifest: %w", err)
	}
	_, err = f.Write(append(b, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = store.SyncDir(dir) // the other files' names, before the one that vouches for them
	}
	if err == nil {
		err = os.Rename(tmp, filepath.Join(dir, manifestName))
	}
	if err == nil {
		err = store.SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("backup: manifest: %w", err)
	}
	return nil
}

// ReadManifest reads the manifest of a complete backup. It does not look at the
// other files.
func ReadManifest(dir string) (m Manifest, err error) {
	path := filepath.Join(dir, manifestName)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, fmt.Errorf("backup: %s is no complete backup: it has no %s, which is written last; take another backup", dir, manifestName)
	}
	if err == nil && info.Size() > maxManifest {
		return m, fmt.Errorf("%w: %s has %d bytes; take another backup", ErrDamaged, path, info.Size())
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return m, fmt.Errorf("backup: %w", err)
	}
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return m, fmt.Errorf("%w: %s is not readable: %v; use another backup", ErrDamaged, path, err)
	}
	if v.Version != manifestVersion {
		return m, fmt.Errorf("backup: %s has version %d, and this program reads version %d; use the fieldpost-hub that wrote it", path, v.Version, manifestVersion)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("%w: %s is not readable: %v; use another backup", ErrDamaged, path, err)
	}
	if sum, err := m.sum(); err != nil || sum != m.Checksum {
		return m, fmt.Errorf("%w: %s does not match its own checksum; use another backup", ErrDamaged, path)
	}
	return m, m.check()
}

// check refuses names that would lead elsewhere.
func (m *Manifest) check() error {
	if len(m.Streams) == 0 || len(m.Streams) > maxStreams {
		return fmt.Errorf("%w: the manifest lists %d streams; use another backup", ErrDamaged, len(m.Streams))
	}
	seen := map[string]bool{}
	for i, s := range m.Streams {
		if s.Name == "" || strings.ContainsAny(s.Name, `/\.*> `+"\t\r\n\x00") || seen[s.Name] || s.File != fileName(i, s.Name) {
			return fmt.Errorf("%w: the manifest lists a stream %.100q in file %.100q; use another backup", ErrDamaged, s.Name, s.File)
		}
		seen[s.Name] = true
	}
	return nil
}

// Bytes is how many bytes the files of the streams have.
func (m *Manifest) Bytes() (n int64) {
	for _, s := range m.Streams {
		n += s.Size
	}
	return n
}
