package desired

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// What NATS clients write where a key was deleted, and what takes the mark away.
const (
	hdrOperation = "KV-Operation"
	opDelete     = "DEL"
	hdrTTL       = "Nats-TTL"
	markFor      = "24h" // longer than an instance may be behind
)

// document is what was set for a target. It is never changed.
type document struct {
	Target
	key  string
	rev  uint64
	at   time.Time
	by   string
	once string // of the write
	data []byte // a JSON object; nil: removed
}

// envelope is a value of the bucket.
type envelope struct {
	By       string          `json:"by"`
	Once     string          `json:"once"` // random: who writes knows by it what it wrote
	Document json.RawMessage `json:"document"`
}

// parseDocument reads a message of the bucket. Only hubs write there, but for whom
// an operator lets in.
func parseDocument(m store.Stored) (*document, error) {
	d := &document{key: m.Subject[min(len(subjectPrefix), len(m.Subject)):], rev: m.Seq, at: m.Time}
	var err error
	if d.Target, err = parseKey(d.key); err != nil {
		return nil, err
	}
	if removed(m.Header) {
		return d, nil
	}
	var e envelope
	if len(m.Data) > 2*wire.MaxDesired {
		return nil, fmt.Errorf("desired: the entry %s of bucket %s has %d bytes; set it again", d.key, store.DesiredBucket, len(m.Data))
	}
	if err = json.Unmarshal(m.Data, &e); err == nil {
		_, err = parse(e.Document)
	}
	if err != nil {
		return nil, fmt.Errorf("desired: the entry %s of bucket %s is not readable: %w; set it again", d.key, store.DesiredBucket, err)
	}
	d.by, d.once, d.data = e.By, e.Once, e.Document
	return d, nil
}

func removed(h nats.Header) bool { return h.Get(hdrOperation) != "" }

func (d *document) show(whole bool) admin.DesiredDocument {
	out := admin.DesiredDocument{Device: d.Device, Label: d.Label(), Revision: d.rev, By: d.by, At: d.at.UTC()}
	if whole {
		out.Document = d.data
	}
	return out
}

// table is all documents, and what of them was removed since it was made.
type table struct {
	docs  map[string]*document
	live  int // documents that are not removed
	bytes int64
}

func newTable() table { return table{docs: map[string]*document{}} }

// put takes in a document unless it has a later one; it reports whether it did.
func (t *table) put(d *document) bool {
	was := t.docs[d.key]
	if was != nil && was.rev >= d.rev {
		return false
	}
	t.count(was, -1)
	t.count(d, 1)
	t.docs[d.key] = d
	return true
}

func (t *table) count(d *document, by int) {
	if d != nil && d.data != nil {
		t.live += by
		t.bytes += int64(by * len(d.data))
	}
}

// get is a document that is there, or nil.
func (t *table) get(key string) *document {
	if d := t.docs[key]; d != nil && d.data != nil {
		return d
	}
	return nil
}

// applies lists what a device gets, the earliest first. Instead of the one with its
// key, instead is taken, as the latest; nil: all as they are.
func (t *table) applies(device string, labels map[string]string, instead *document) (out []*document) {
	if t.live == 0 && instead == nil {
		return nil
	}
	add := func(tg Target) {
		key := tg.key()
		switch d := t.get(key); {
		case instead != nil && instead.key == key:
			out = append(out, instead)
		case d != nil:
			out = append(out, d)
		}
	}
	add(Target{Device: device})
	for k, v := range labels {
		add(Target{Key: k, Value: v})
	}
	slices.SortFunc(out, func(a, b *document) int { return cmp.Compare(a.rev, b.rev) })
	return out
}

// cached is how many merged documents are kept: of labels, which many devices
// share. One has wire.MaxDesired at most.
const cached = 256

// mergedOf is mergeAll that remembers.
func (d *Desired) mergedOf(docs []*document) (*merged, error) {
	key := revisions(docs)
	d.mu.RLock()
	m := d.cache[key]
	d.mu.RUnlock()
	if m != nil {
		return m, nil
	}
	m, err := mergeAll(docs)
	if err != nil {
		return nil, err
	}
	if !own(docs) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.cache) >= cached {
			clear(d.cache)
		}
		d.cache[key] = m
	}
	return m, nil
}

// own reports whether one of the documents is of one device alone.
func own(docs []*document) bool {
	return slices.ContainsFunc(docs, func(d *document) bool { return d.Device != "" })
}

// revisions is a name of documents: no two of a bucket have one revision.
func revisions(docs []*document) string {
	var b []byte
	for _, d := range docs {
		b = append(strconv.AppendUint(b, d.rev, 36), ' ')
	}
	return string(b)
}
