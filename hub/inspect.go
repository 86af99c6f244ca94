package hub

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
)

// inspection is how the streams compare with the configuration.
type inspection struct {
	err     error             // of comparing them
	reasons []string          // why the hub does not do its work
	notes   map[string]string // by stream: what somebody should know
	anew    map[string]string // by stream: it was deleted while the hub ran
	orphans []store.Held
}

// inspect compares the streams with the configuration, repairs what is safe to
// repair, and notes the rest.
func (m *monitor) inspect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	var found []store.Finding
	var orphans []store.Held
	overruled, err := m.parts.unpack.Overruled(ctx)
	if err == nil && !overruled { // else the streams are another's to look after
		found, err = m.parts.store.Check(ctx, m.parts.layout)
		var err2 error
		if orphans, err2 = m.parts.store.Orphans(ctx, m.parts.layout); err == nil {
			err = err2
		}
	}
	if ctx.Err() != nil && context.Cause(ctx) != context.DeadlineExceeded {
		return // stopping
	}
	now := m.hub.cfg.Now().UTC().Format(time.RFC3339)
	m.mu.Lock()
	was := m.seen
	next := inspection{err: err, notes: map[string]string{}, anew: maps.Clone(was.anew), orphans: orphans}
	if next.anew == nil {
		next.anew = map[string]string{}
	}
	for _, f := range found {
		next.take(f, now)
	}
	if overruled {
		next.reasons = append(next.reasons, otherRoutes)
	}
	m.seen = next
	m.mu.Unlock()
	m.logInspection(was, next, found)
}

// take turns a finding into words.
func (in *inspection) take(f store.Finding, now string) {
	if f.Created {
		in.anew[f.Stream] = fmt.Sprintf("stream %s was deleted while the hub ran and was made anew, empty (%s); what it held is gone, new messages are stored", f.Stream, now)
	} else if f.Gone {
		in.reasons = append(in.reasons, fmt.Sprintf("stream %s was deleted; stop the hub and restore it from a backup, or start the hub again to begin with an empty one", f.Stream))
	}
	if len(f.Changed) > 0 {
		in.notes[f.Stream] = fmt.Sprintf("stream %s has other settings than the configuration: %s; to keep them, write them into hub.yaml: the next start of a hub puts the old ones back",
			f.Stream, strings.Join(f.Changed, ", "))
	}
}

const otherRoutes = "another hub instance was started later with other routes, and they hold; stop all instances, then start all of them with the same routes"

// logInspection logs what is new.
func (m *monitor) logInspection(was, now inspection, found []store.Finding) {
	log := m.hub.cfg.Log
	if now.err != nil && (was.err == nil || was.err.Error() != now.err.Error()) {
		log.Error("the streams cannot be compared with the configuration", "err", now.err)
	}
	if slices.Contains(now.reasons, otherRoutes) && !slices.Contains(was.reasons, otherRoutes) {
		log.Error(otherRoutes)
	}
	for _, f := range found {
		if len(f.Repaired) > 0 {
			log.Error("somebody has changed settings of a stream that the hub needs; they are back", "stream", f.Stream, "settings", strings.Join(f.Repaired, ", "))
		}
		if f.Created {
			log.Error(now.anew[f.Stream])
		}
		if note := now.notes[f.Stream]; note != "" && note != was.notes[f.Stream] {
			log.Warn(note)
		}
	}
	for _, o := range now.orphans {
		if !slices.ContainsFunc(was.orphans, func(w store.Held) bool { return w.Name == o.Name }) {
			log.Warn("no route stores into this stream any more; it stays as it is", "stream", o.Name, "messages", o.Messages, "bytes", o.Bytes)
		}
	}
}

// notes lists what somebody should know although the hub does its work.
func (m *monitor) notes() (out []string) {
	m.mu.Lock()
	seen, last := m.seen, m.last
	m.mu.Unlock()
	for _, name := range []string{store.Retry, store.Commands} {
		if st := last.stream(name); isFull(st) {
			out = append(out, fmt.Sprintf("stream %s is full: %d of %d bytes; %s", name, st.Bytes, st.MaxBytes, m.hub.whenFull(name)))
		}
	}
	for _, by := range []map[string]string{seen.anew, seen.notes} {
		for _, stream := range slices.Sorted(maps.Keys(by)) {
			out = append(out, by[stream])
		}
	}
	for _, o := range seen.orphans {
		out = append(out, fmt.Sprintf("stream %s is orphaned: no route stores into it any more. It stays, with %d messages; a route with this stream takes it over again, `nats stream rm %[1]s` removes it", o.Name, o.Messages))
	}
	for _, u := range m.parts.unpack.Status() {
		if u.Intruded > 0 {
			out = append(out, fmt.Sprintf("messages of others in stream %s, which only the hub may write: %d or more since this hub started; they stay there, and nothing of the hub's is lost: "+
				"take away their right to publish to its subjects", u.Stream, u.Intruded))
		}
	}
	out = append(out, m.lossNotes()...)
	if n := m.parts.unpack.Unrouted(); n.Messages > 0 {
		out = append(out, fmt.Sprintf("messages without a route: %d, the newest with subject %s; they are in no stream, and in BLOCKS only until blocks.retain: add a route for them, then `fieldpost-hub routes backfill`", n.Messages, n.Subject))
	}
	return out
}

func adminStream(h store.Held) admin.Stream {
	return admin.Stream{Name: h.Name, Messages: h.Messages, Bytes: h.Bytes, MaxBytes: h.MaxBytes, First: h.First, Last: h.Last}
}
