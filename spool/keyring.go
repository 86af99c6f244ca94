package spool

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A segment is encrypted by Badger: a data key of its own, itself encrypted with
// the key of the configuration, lies in KEYREGISTRY. KEY beside it says which
// key that is, and holds a copy of the registry: without its data key nothing in
// a segment could be salvaged.
const (
	keyName      = "KEY"
	keyKind      = "fieldpost-spool-key"
	keyVersion   = 1
	registryName = "KEYREGISTRY"
	maxRegistry  = 4 << 10 // with one data key it has about 100 bytes
)

type keyNote struct {
	ID       string `json:"key"`
	Registry []byte `json:"registry"`
}

// KeyID names a key without telling it: the first 8 bytes of an HMAC-SHA-256, in hex.
func KeyID(key []byte) string {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("fieldpost spool key id"))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// KeyUse is a key and what it is needed for.
type KeyUse struct {
	ID       string // "" stands for the segments that are not encrypted
	Segments int    // that it encrypts
	Current  bool   // new segments get it
}

// keyring holds the keys of the configuration. The first encrypts new segments;
// an empty one says that they are not encrypted.
type keyring struct {
	keys  [][]byte
	ids   []string
	found map[string]string // ids by folder, of the check; Open only
}

func newKeyring(keys [][]byte) *keyring {
	k := &keyring{keys: keys}
	for _, key := range keys {
		id := ""
		if len(key) > 0 {
			id = KeyID(key)
		}
		k.ids = append(k.ids, id)
	}
	return k
}

// current is the key of new segments; nil: they are not encrypted.
func (k *keyring) current() ([]byte, string) {
	if k == nil || len(k.keys) == 0 || len(k.keys[0]) == 0 {
		return nil, ""
	}
	return k.keys[0], k.ids[0]
}

// secret is how a segment is encrypted.
type secret struct {
	id       string // of the key; "": not encrypted
	key      []byte // nil: not encrypted, or not ours
	dataKeys map[uint64][]byte
}

// missing reports that the segment cannot be read for want of its key.
func (l secret) missing() bool { return l.id != "" && l.key == nil }

// unknownKey stands for a key whose id is lost as well.
const unknownKey = "unknown"

// of looks up how the segment in dir is encrypted. What is damaged is taken
// from where it is not.
func (k *keyring) of(dir string) (secret, error) {
	registry, err := readSmall(filepath.Join(dir, registryName))
	if err != nil {
		return secret{}, err
	}
	var note keyNote
	body, err := readChecked(filepath.Join(dir, keyName), keyKind, keyVersion)
	if err == nil {
		err = json.Unmarshal(body, &note)
	}
	switch {
	case err == nil:
		return k.noted(note, registry), nil
	case errors.Is(err, ErrLayout):
		return secret{}, err
	}
	if _, plain := parseRegistry(registry, nil); plain || registry == nil {
		return secret{}, nil
	}
	if k != nil {
		for i, key := range k.keys {
			if data, ok := parseRegistry(registry, key); ok && len(key) > 0 {
				return secret{k.ids[i], key, data}, nil
			}
		}
		if len(k.keys) > 0 {
			return secret{}, nil // damaged twice: not a question of keys any more
		}
	}
	if logsEncrypted(dir) {
		return secret{id: unknownKey}, nil
	}
	return secret{}, nil
}

func (k *keyring) noted(note keyNote, registry []byte) secret {
	l := secret{id: note.ID}
	if k == nil {
		return l
	}
	if i := slices.Index(k.ids, note.ID); i >= 0 {
		l.key = k.keys[i]
		var ok bool
		if l.dataKeys, ok = parseRegistry(registry, l.key); !ok {
			l.dataKeys, _ = parseRegistry(note.Registry, l.key)
		}
	}
	return l
}

// idOf is the id of the key that encrypts the segment in dir, as far as known.
func (k *keyring) idOf(dir string) string {
	if id, ok := k.found[dir]; ok {
		return id
	}
	l, err := k.of(dir)
	if err != nil {
		return ""
	}
	return l.id
}

// prepare makes the segment that Badger is about to create in dir an encrypted
// one, if there is a key. The data key is drawn here: Badger would write in the
// clear while the clock says that 1970 began less than its rotation ago.
func (k *keyring) prepare(dir string) error {
	key, id := k.current()
	if key == nil {
		return nil
	}
	dataKey := make([]byte, len(key))
	rand.Read(dataKey) // never fails
	registry, err := newRegistry(key, dataKey)
	if err != nil {
		return err
	}
	body, err := json.Marshal(keyNote{id, registry})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, keyName), appendChecked(keyKind, keyVersion, body), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, registryName), registry, 0o600)
}

// assertEncrypted makes sure that Badger does what was asked for.
func (k *keyring) assertEncrypted(h *head) error {
	if key, _ := k.current(); key == nil {
		return nil
	}
	for _, f := range []*os.File{h.vlog, h.mem} {
		var header [logHeader]byte
		if _, err := f.ReadAt(header[:], 0); err != nil {
			return err
		}
		if logKey(header[:]) != dataKeyID {
			return fmt.Errorf("badger does not encrypt %s", f.Name())
		}
	}
	return nil
}

// need counts by id which keys the segments of the spool in dir are encrypted
// with, and which of these k lacks. Nothing is changed.
func (k *keyring) need(dir string) (need map[string]int, lacking []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	need = map[string]int{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !strings.HasPrefix(e.Name(), segmentPrefix) && !strings.HasPrefix(e.Name(), salvagePrefix) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(path, drainedName)); err == nil {
			continue // is about to be removed
		}
		l, err := k.of(path)
		if errors.Is(err, ErrLayout) {
			return nil, nil, err
		}
		if err != nil {
			continue // unreadable: found again when it is loaded
		}
		need[l.id]++
		if k.found != nil {
			k.found[path] = l.id
		}
		if l.missing() && !slices.Contains(lacking, l.id) {
			lacking = append(lacking, l.id)
		}
	}
	return need, lacking, nil
}

// check refuses to go on without a key that is needed.
func (k *keyring) check(dir string) error {
	need, lacking, err := k.need(dir)
	if err != nil || len(lacking) == 0 {
		return err
	}
	n := 0
	for i, id := range lacking {
		n += need[id]
		lacking[i] = fmt.Sprintf("%s (%d segments)", id, need[id])
	}
	have := "no key is configured"
	if len(k.ids) > 0 {
		have = "the keys given are " + strings.Join(k.ids, ", ")
	}
	return fmt.Errorf("%w: %d segments of %s are encrypted with %s; %s. Nothing was touched. Add the missing key as a further line of the file that spool.key_file names (below the line none, if new segments shall not be encrypted), or move the folder away to begin with an empty spool",
		ErrKey, n, dir, strings.Join(lacking, ", "), have)
}

// Keys lists the given keys and every other that the spool in dir needs. It
// changes nothing and may be called while the spool is in use.
func Keys(dir string, keys [][]byte) ([]KeyUse, error) {
	k := newKeyring(keys)
	need, _, err := k.need(dir)
	if err != nil {
		return nil, fmt.Errorf("spool: look for keys: %w", err)
	}
	return k.uses(need), nil
}

// uses joins what is needed with what is there, the current key first.
func (k *keyring) uses(need map[string]int) (out []KeyUse) {
	for i, id := range k.ids {
		out = append(out, KeyUse{ID: id, Segments: need[id], Current: i == 0})
		delete(need, id)
	}
	for _, id := range slices.SortedFunc(maps.Keys(need), cmp.Compare[string]) {
		out = append(out, KeyUse{ID: id, Segments: need[id], Current: id == "" && len(k.ids) == 0})
	}
	return out
}

// keyUses is Keys for a running spool. mu is held.
func (s *Spool) keyUses() []KeyUse {
	need := map[string]int{}
	for _, g := range s.segments {
		if !g.gone {
			need[g.key]++
		}
	}
	if key, _ := s.geo.keys.current(); key == nil && (len(need) == 0 || len(need) == 1 && need[""] > 0) {
		return nil
	}
	return s.geo.keys.uses(need)
}

// readSmall reads a file of which only the start can be ours; nil if there is none.
func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	buf := make([]byte, maxRegistry)
	n, err := f.Read(buf)
	if n == 0 && err != nil && !errors.Is(err, fs.ErrInvalid) {
		return buf[:0], nil //nolint:nilerr // empty, or unreadable: both are damage
	}
	return buf[:n], nil
}
