package trace

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Only what the server keeps of a consumer is said, and what it does not tell is
// said to be unknown.
func TestStandingSaysNoMoreThanTheServerKnows(t *testing.T) {
	stored := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	before, after := stored.Add(-time.Hour), stored.Add(time.Hour)
	consumer := func(floor, delivered uint64, created time.Time, cfg jetstream.ConsumerConfig) *jetstream.ConsumerInfo {
		return &jetstream.ConsumerInfo{
			Created: created, Config: cfg, NumAckPending: 3,
			AckFloor: jetstream.SequenceInfo{Stream: floor}, Delivered: jetstream.SequenceInfo{Stream: delivered},
		}
	}
	explicit := jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy}
	with := func(p jetstream.DeliverPolicy, seq uint64, at *time.Time) jetstream.ConsumerConfig {
		return jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: p, OptStartSeq: seq, OptStartTime: at}
	}
	for _, tt := range []struct {
		c           *jetstream.ConsumerInfo
		state, text string
	}{
		{consumer(0, 0, after, explicit), "pending", "delivered up to 0"},
		{consumer(5, 9, after, explicit), "pending", "delivered up to 9"},
		{consumer(5, 10, after, explicit), "delivered", "3 messages are not"},
		{consumer(10, 12, after, explicit), "settled", "up to at least 10"},
		{consumer(12, 12, after, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}), "delivered", "acknowledges nothing"},
		{consumer(12, 12, after, with(jetstream.DeliverNewPolicy, 0, nil)), "before", "only what is newer"},
		{consumer(12, 12, before, with(jetstream.DeliverNewPolicy, 0, nil)), "settled", ""},
		{consumer(12, 12, after, with(jetstream.DeliverLastPolicy, 0, nil)), "unknown", "not known"},
		{consumer(9, 9, after, with(jetstream.DeliverLastPolicy, 0, nil)), "pending", ""},
		{consumer(12, 12, after, with(jetstream.DeliverByStartSequencePolicy, 11, nil)), "before", "sequence 11"},
		{consumer(12, 12, after, with(jetstream.DeliverByStartSequencePolicy, 10, nil)), "settled", ""},
		{consumer(12, 12, after, with(jetstream.DeliverByStartTimePolicy, 0, &after)), "before", after.Format(time.RFC3339)},
		{consumer(12, 12, after, with(jetstream.DeliverByStartTimePolicy, 0, &before)), "settled", ""},
	} {
		state, text := standing(tt.c, 10, stored)
		if state != tt.state || !strings.Contains(text, tt.text) {
			t.Errorf("floor %d, delivered %d, %+v: %s, %q; want %s, %q", tt.c.AckFloor.Stream, tt.c.Delivered.Stream, tt.c.Config, state, text, tt.state, tt.text)
		}
	}
}

func TestTakes(t *testing.T) {
	for _, tt := range []struct {
		c    jetstream.ConsumerConfig
		want bool
	}{
		{jetstream.ConsumerConfig{}, true},
		{jetstream.ConsumerConfig{FilterSubject: "edge.*.a"}, true},
		{jetstream.ConsumerConfig{FilterSubject: "edge.*.b"}, false},
		{jetstream.ConsumerConfig{FilterSubjects: []string{"edge.*.b", "edge.d.>"}}, true},
	} {
		if got := takes(&tt.c, "edge.d.a"); got != tt.want {
			t.Errorf("%+v: %v", tt.c, got)
		}
	}
}
