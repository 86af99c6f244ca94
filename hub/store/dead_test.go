package store

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// What surrounds DEAD takes no more than DEAD was given.
func TestDeadSharesItsRoom(t *testing.T) {
	for _, total := range []int64{0, 1 << 20, 7_000_003, 100 << 30} {
		sum := int64(0)
		for _, c := range deadStreams(Layout{DeadMaxBytes: total}) {
			if c.MaxBytes < 0 || total > 0 && c.MaxBytes == 0 {
				t.Errorf("of %d bytes %s gets %d", total, c.Name, c.MaxBytes)
			}
			sum += c.MaxBytes
		}
		if sum != total {
			t.Errorf("of %d bytes %d are given", total, sum)
		}
	}
	if got := []time.Duration{RetryAge(0), RetryAge(time.Minute), RetryAge(720 * time.Hour)}; !slices.Equal(got, []time.Duration{0, time.Hour, 72 * time.Hour}) {
		t.Errorf("ages in RETRY: %v", got)
	}
}

// A hub of before had all of the room in DEAD.
func TestDeadGivesRoomToWhatIsNew(t *testing.T) {
	s := open(t, Config{})
	_, err := s.js.CreateStream(ctx(t), jetstream.StreamConfig{Name: Dead, Subjects: []string{"dead.>"}, MaxBytes: 1<<30 - 130<<20, MaxAge: time.Hour,
		AllowAtomicPublish: true, AllowDirect: true, Metadata: map[string]string{metaOwner: "1"}})
	if err != nil {
		t.Fatal(err)
	}
	l := testLayout
	l.DeadMaxBytes = 1<<30 - 130<<20 // the store is full of promises
	for range 2 {
		if err := s.EnsureStreams(ctx(t), l); err != nil {
			t.Fatal(err)
		}
	}
	st, err := s.js.Stream(ctx(t), Advisories)
	if err != nil {
		t.Fatal(err)
	}
	if c := st.CachedInfo().Config; len(c.Subjects) != 4 || c.Retention != jetstream.WorkQueuePolicy || c.PersistMode != jetstream.AsyncPersistMode || c.Metadata[metaOwner] != "1" {
		t.Errorf("%+v", c)
	}
	l.Routes = append(l.Routes, RouteStream{Name: "ALARMS", Subjects: []string{"alarms.>"}, MaxBytes: 1 << 20})
	if err := s.EnsureStreams(ctx(t), l); err != nil {
		t.Fatal(err)
	}
	if st, err = s.js.Stream(ctx(t), Advisories); err != nil || len(st.CachedInfo().Config.Subjects) != 6 {
		t.Errorf("%+v, %v", st.CachedInfo().Config, err)
	}
}

func TestNextAndDelete(t *testing.T) {
	s := ready(t, Config{})
	for _, subject := range []string{"dead.a.x", "dead.b.x", "dead.a.y", "dead.a.x"} {
		if _, err := s.PublishBatch(ctx(t), []Msg{{Subject: subject, Data: []byte(subject)}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		filter string
		from   uint64
		want   uint64
	}{{"dead.a.x", 1, 1}, {"dead.a.x", 2, 4}, {"dead.a.>", 2, 3}, {"dead.b.*", 1, 2}, {"dead.b.*", 3, 0}, {"dead.c", 1, 0}, {"dead.a.x", 5, 0}} {
		m, err := s.Next(ctx(t), Dead, tt.filter, tt.from)
		if tt.want == 0 != errors.Is(err, ErrNotFound) || m.Seq != tt.want {
			t.Errorf("%s from %d: %d, %v; want %d", tt.filter, tt.from, m.Seq, err, tt.want)
		}
	}
	for _, was := range []bool{true, false} {
		if got, err := s.Delete(ctx(t), Dead, 1); err != nil || got != was {
			t.Errorf("delete: %v, %v", got, err)
		}
	}
	if got, err := s.Delete(ctx(t), Dead, 99); err != nil || got {
		t.Errorf("delete of nothing: %v, %v", got, err)
	}
	if _, err := s.Delete(ctx(t), "NONE", 1); err == nil {
		t.Error("delete from no stream succeeds")
	}
	if m, err := s.Next(ctx(t), Dead, "dead.a.x", 1); err != nil || m.Seq != 4 {
		t.Errorf("after the delete: %d, %v", m.Seq, err)
	}
}
