package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Streams around DEAD.
const (
	Retry = "RETRY" // messages of DEAD that are offered once more, on retry.<consumer>
	// Advisories is a queue of the server's word that a consumer has given up. The
	// embedded server does not sync each one: synced one by one, a burst is
	// hundreds of milliseconds behind the state of the consumer, and a kill in
	// between loses the rest (283 of 300 here). Without that they are in the file
	// within 10 ms, and their letters, which are synced, follow at once.
	Advisories = "ADVISORIES"
	// Audit is who changed what by hand. It only grows, until the oldest goes.
	Audit      = "AUDIT"
	DeadBucket = "fieldpost_dead" // which of them were put into DEAD, and which letters into RETRY
	DeadIndex  = "KV_" + DeadBucket
)

// deadShares of Layout.DeadMaxBytes; DEAD has the rest.
const (
	retryShare      = 20 // percent
	advisoriesShare = 10
	indexShare      = 10
	auditShare      = 2

	advisoriesMost = 64 << 20  // bytes; about 150,000 advisories
	indexMost      = 256 << 20 // bytes; about a million entries
	auditMost      = 16 << 20  // bytes; about 50,000 entries
)

// RetryAge is how long a message stays in RETRY where letters stay in DEAD for
// deadAge; 0 is for ever.
func RetryAge(deadAge time.Duration) time.Duration {
	if deadAge == 0 {
		return 0
	}
	return max(deadAge/10, time.Hour)
}

// indexAge outlives the letter: an advisory may come late.
func indexAge(deadAge time.Duration) time.Duration {
	if deadAge == 0 {
		return 0
	}
	return deadAge + 24*time.Hour
}

// deadStreams are DEAD and what surrounds it, in one room.
func deadStreams(l Layout) []jetstream.StreamConfig {
	share := func(percent, most int64) int64 {
		n := l.DeadMaxBytes / 100 * percent
		if most > 0 {
			n = min(n, most)
		}
		return n
	}
	retry, advisories, index := share(retryShare, 0), share(advisoriesShare, advisoriesMost), share(indexShare, indexMost)
	audit := share(auditShare, auditMost)
	entries := bucket(DeadBucket, "Fieldpost: which messages were put into DEAD, and which into RETRY")
	entries.MaxBytes, entries.MaxAge = index, indexAge(l.DeadMaxAge)
	entries.Discard, entries.AllowAtomicPublish = jetstream.DiscardOld, true
	return []jetstream.StreamConfig{
		{
			Name: Dead, Description: "Fieldpost: what nobody could take, and gaps",
			Subjects: []string{"dead.>"}, MaxBytes: l.DeadMaxBytes - retry - advisories - index - audit, MaxAge: l.DeadMaxAge,
			AllowAtomicPublish: true, AllowDirect: true,
		},
		{
			Name: Retry, Description: "Fieldpost: messages of DEAD, offered once more to the consumer that gave up",
			Subjects: []string{"retry.*"}, MaxBytes: retry, MaxAge: RetryAge(l.DeadMaxAge),
			Discard: jetstream.DiscardNew, AllowAtomicPublish: true, AllowDirect: true,
		},
		{
			Name: Advisories, Description: "Fieldpost: which consumers gave up which messages; only the hub reads it",
			Subjects: advisorySubjects(l), MaxBytes: advisories, Retention: jetstream.WorkQueuePolicy,
		},
		{
			Name: Audit, Description: "Fieldpost: who changed what by hand; only the hub writes it",
			Subjects: []string{AuditPrefix + "*"}, MaxBytes: audit, DenyDelete: true, DenyPurge: true, AllowAtomicPublish: true, AllowDirect: true,
		},
		entries,
	}
}

// AuditPrefix is what subjects of AUDIT begin with; an action follows.
const AuditPrefix = "fp.audit."

// The subjects of advisories; a stream and a consumer follow.
const (
	MaxDeliveriesPrefix = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."
	TerminatedPrefix    = "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED."
)

// advisorySubjects names the streams, so that what happens to other streams of
// the same account takes no room.
func advisorySubjects(l Layout) (out []string) {
	streams := []string{Retry}
	for _, r := range l.Routes {
		streams = append(streams, r.Name)
	}
	for _, s := range streams {
		out = append(out, MaxDeliveriesPrefix+s+".*", TerminatedPrefix+s+".*")
	}
	return out
}

// Next reads the first message at seq or later whose subject the filter takes,
// from the stream's leader, or ErrNotFound.
func (s *Store) Next(ctx context.Context, stream, filter string, seq uint64) (Stored, error) {
	return s.get(ctx, stream, getRequest{Seq: seq, NextBySubject: filter})
}

// Delete removes one message and reports whether it was there.
func (s *Store) Delete(ctx context.Context, stream string, seq uint64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	m, err := s.read.RequestWithContext(ctx, "$JS.API.STREAM.MSG.DELETE."+stream, fmt.Appendf(nil, `{"seq":%d,"no_erase":true}`, seq))
	if err == nil {
		var r struct {
			Success bool `json:"success"`
			Error   *struct {
				Description string `json:"description"`
			} `json:"error"`
		}
		switch err = json.Unmarshal(m.Data, &r); {
		case err == nil && r.Success:
			return true, nil
		case err == nil && r.Error != nil:
			if _, e := s.Get(ctx, stream, seq); errors.Is(e, ErrNotFound) {
				return false, nil
			}
			err = errors.New(r.Error.Description)
		case err == nil:
			err = fmt.Errorf("answer %.80q says nothing", m.Data)
		}
	}
	return false, fmt.Errorf("store: remove %d from %s: %w", seq, stream, err)
}
