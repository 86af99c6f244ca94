package desired

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// MaxDepth is how deeply objects and arrays of a document may lie in each other.
const MaxDepth = 32

// object is a JSON object. Numbers are json.Number, so that they stay as written.
type object = map[string]any

// parse reads a document: one JSON object without duplicate names.
func parse(data []byte) (object, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("it is not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, err := parseValue(dec, "", 0)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it ends too early")
		}
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the object")
	}
	o, ok := v.(object)
	if !ok {
		return nil, errors.New(`it is not a JSON object, such as {"agent":{"log":{"level":"debug"}}}`)
	}
	return o, nil
}

// parseValue reads the value of path.
func parseValue(dec *json.Decoder, path string, depth int) (any, error) {
	if depth > MaxDepth {
		return nil, fmt.Errorf("%.80s lies more than %d levels deep", path, MaxDepth)
	}
	t, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('['):
		out := []any{}
		for i := 0; dec.More(); i++ {
			v, err := parseValue(dec, path+"["+strconv.Itoa(i)+"]", depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		_, err = dec.Token()
		return out, err
	case json.Delim('{'):
		out := object{}
		for dec.More() {
			name, err := dec.Token()
			if err != nil {
				return nil, err
			}
			key := name.(string) // Token has checked it
			at := strings.TrimPrefix(path+"."+key, ".")
			if _, twice := out[key]; twice {
				return nil, fmt.Errorf("%.80s is there twice", at)
			}
			if out[key], err = parseValue(dec, at, depth+1); err != nil {
				return nil, err
			}
		}
		_, err = dec.Token()
		return out, err
	}
	return t, nil
}

// merge lays a patch over target, which it may change, as RFC 7396 says: members
// replace members, objects are merged, null removes. The patch is left alone.
func merge(target, patch object) object {
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(target, k)
		case object:
			below, ok := target[k].(object)
			if !ok {
				below = object{}
			}
			target[k] = merge(below, v)
		default:
			target[k] = v
		}
	}
	return target
}

// canonical writes a document the one way: names sorted, no spaces, numbers as they
// were written, and <, > and & escaped. It is what a device gets, and what limits
// and versions are of.
func canonical(o object) ([]byte, error) { return json.Marshal(o) }

// merged is what a device gets.
type merged struct {
	rev     uint64 // the highest of the documents; 0: there are none
	hash    string
	data    []byte // canonical; nil if tooLarge
	size    int
	version string
}

func (m *merged) tooLarge() bool { return m.size > wire.MaxDesired }

// mergeAll lays documents over each other in their order.
func mergeAll(docs []*document) (*merged, error) {
	out, m := object{}, &merged{}
	for _, d := range docs {
		o, err := parse(d.data)
		if err != nil {
			return nil, fmt.Errorf("desired: the entry %s of the bucket is not a document: %w; set it again", d.key, err)
		}
		out, m.rev = merge(out, o), max(m.rev, d.rev)
	}
	data, err := canonical(out)
	if err != nil {
		return nil, fmt.Errorf("desired: %w", err)
	}
	sum := sha256.Sum256(data)
	m.hash, m.size = hex.EncodeToString(sum[:16]), len(data)
	m.version = strconv.FormatUint(m.rev, 10) + "-" + m.hash
	if !m.tooLarge() {
		m.data = data
	}
	return m, nil
}

// split takes a version apart; rev is 0 for what is no version of a hub.
func split(version string) (rev uint64, hash string) {
	head, hash, _ := strings.Cut(version, "-")
	rev, err := strconv.ParseUint(head, 10, 64)
	if err != nil {
		return 0, ""
	}
	return rev, hash
}
