package desired

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Keys of the bucket: doc.device.<device>, doc.label.<key>.<value>, both in base64
// after a letter, as a value may be empty, and report.<device>.
const (
	subjectPrefix = "$KV." + store.DesiredBucket + "."
	docFilter     = subjectPrefix + "doc.>"
	reportPrefix  = subjectPrefix + "report."

	maxKey   = 64  // bytes of a label's key, as in the registry
	maxValue = 256 // of its value
)

// Target is one device, or all that have a label.
type Target struct {
	Device     string
	Key, Value string // of the label, if Device is empty
}

// ParseLabel reads key=value.
func ParseLabel(s string) (t Target, err error) {
	key, value, ok := strings.Cut(s, "=")
	t = Target{Key: key, Value: value}
	if !ok {
		return t, fmt.Errorf("label %.80q is not like site=north", s)
	}
	return t, t.check()
}

// Label is key=value, or empty.
func (t Target) Label() string {
	if t.Device != "" {
		return ""
	}
	return t.Key + "=" + t.Value
}

func (t Target) String() string {
	if t.Device != "" {
		return t.Device
	}
	return t.Label()
}

func (t Target) check() error {
	if t.Device != "" {
		return wire.CheckDevice(t.Device)
	}
	if t.Key == "" || !printable(t.Key, maxKey) || !printable(t.Value, maxValue) {
		return fmt.Errorf("label %.80q is not a key of 1 to %d, = and a value of up to %d printable bytes", t.Label(), maxKey, maxValue)
	}
	return nil
}

func printable(s string, limit int) bool {
	return len(s) <= limit && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// key is the target's key in the bucket.
func (t Target) key() string {
	if t.Device != "" {
		return "doc.device." + t.Device
	}
	return "doc.label." + encode("k", t.Key) + "." + encode("v", t.Value)
}

func encode(letter, s string) string { return letter + base64.RawURLEncoding.EncodeToString([]byte(s)) }

// parseKey is the reverse of key.
func parseKey(key string) (t Target, err error) {
	parts := strings.Split(key, ".")
	switch {
	case len(parts) == 3 && parts[0] == "doc" && parts[1] == "device":
		t.Device = parts[2]
	case len(parts) == 4 && parts[0] == "doc" && parts[1] == "label" && parts[2] != "" && parts[3] != "":
		k, e1 := base64.RawURLEncoding.DecodeString(parts[2][1:])
		v, e2 := base64.RawURLEncoding.DecodeString(parts[3][1:])
		if err := errors.Join(e1, e2); err != nil {
			return t, err
		}
		t.Key, t.Value = string(k), string(v)
	default:
		return t, fmt.Errorf("desired: key %.80q is of no device and no label", key)
	}
	if err := t.check(); err != nil {
		return t, err
	}
	if t.key() != key {
		return t, fmt.Errorf("desired: key %.80q is not written as a hub does", key)
	}
	return t, nil
}
