package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/store"
)

// raw is a stream's configuration with all that the server knows of it, known to
// the client's library or not.
type raw map[string]json.RawMessage

func (r raw) set(key string, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		r[key] = b
	}
	return err
}

// planned is a stream that will be restored.
type planned struct {
	Stream
	config raw             // while it is restored
	maxAge json.RawMessage // afterwards
}

// plan says how the streams are created at the target, or why they cannot be.
func plan(m Manifest, s *store.Store, l store.Layout, replicas int) (out []planned, err error) {
	var wrong []error
	for _, st := range m.Streams {
		p, err := planOne(st, s, l, replicas)
		if err != nil {
			wrong = append(wrong, err)
		}
		out = append(out, p)
	}
	return out, errors.Join(wrong...)
}

func planOne(st Stream, s *store.Store, l store.Layout, replicas int) (planned, error) {
	p := planned{Stream: st, config: raw{}}
	if err := json.Unmarshal(st.Config, &p.config); err != nil {
		return p, fmt.Errorf("%w: configuration of stream %s: %w", ErrDamaged, st.Name, err)
	}
	var have jetstream.StreamConfig
	if err := json.Unmarshal(st.Config, &have); err != nil {
		return p, fmt.Errorf("%w: configuration of stream %s: %w", ErrDamaged, st.Name, err)
	}
	if have.Name != st.Name || !store.Own(have.Metadata) {
		return p, fmt.Errorf("%w: stream %s is not one of Fieldpost's", ErrDamaged, st.Name)
	}
	maxBytes := have.MaxBytes
	if want, ok := s.Wanted(l, st.Name); ok {
		maxBytes = want.MaxBytes
		if want.PersistMode == jetstream.AsyncPersistMode {
			have.PersistMode = want.PersistMode
		} else {
			have.PersistMode = jetstream.DefaultPersistMode
		}
	} else {
		have.PersistMode = jetstream.DefaultPersistMode
	}
	if maxBytes > 0 && st.Bytes > uint64(maxBytes) {
		return p, fmt.Errorf("backup: stream %s holds %d bytes, and by the configuration of the target it may hold %d; raise the max_bytes of its route, "+
			"of blocks or of dead there, or nats.max_store (it can be lowered again later)", st.Name, st.Bytes, maxBytes)
	}
	if largest := int64(s.MaxPayload()); st.Largest > largest {
		return p, fmt.Errorf("backup: stream %s holds a message of %d bytes, and the target's NATS server takes %d; raise its max_payload", st.Name, st.Largest, largest)
	}
	p.maxAge = p.config["max_age"]
	maps.DeleteFunc(have.Metadata, func(k, _ string) bool { return strings.HasPrefix(k, "_nats.") })
	for _, key := range []string{"placement", "persist_mode"} { // of the other place
		delete(p.config, key)
	}
	err := errors.Join(p.config.set("num_replicas", replicas), p.config.set("max_bytes", maxBytes), p.config.set("metadata", have.Metadata),
		p.config.set("max_age", 0)) // or what is old would go before it can be counted
	if have.PersistMode == jetstream.AsyncPersistMode {
		err = errors.Join(err, p.config.set("persist_mode", have.PersistMode))
	}
	return p, err
}

// leastServer writes and reads the format of snapshots that this package reads.
var leastServer = [2]int{2, 15}

func checkServer(version string) error {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) == 3 {
		major, e1 := strconv.Atoi(parts[0])
		minor, e2 := strconv.Atoi(parts[1])
		if e1 == nil && e2 == nil && (major > leastServer[0] || major == leastServer[0] && minor >= leastServer[1]) {
			return nil
		}
	}
	return fmt.Errorf("backup: the NATS server has version %.20q; update every server of the cluster to %d.%d or later", version, leastServer[0], leastServer[1])
}
