package hub

import (
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/hub/unpack"
)

// TestOtherInstanceWithOtherRoutes: the one that was started first says so. It
// neither takes back what the other needs of the streams, nor calls them orphaned.
func TestOtherInstanceWithOtherRoutes(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	p := r.open.Load()
	routes := unpack.Table{{Match: "logs.>", Stream: "LOGS", Prefix: "logs"}, {Match: ">", Stream: "EDGE", Prefix: "edge"}}
	if _, err := unpack.New(t.Context(), unpack.Config{Store: p.store, Routes: routes, Instance: "other"}); err != nil {
		t.Fatal(err)
	}
	// By itself: an inspection that began before would put back what follows.
	eventually(t, "it says so", func() bool {
		st, err := r.admin().Status(t.Context())
		return err == nil && !st.Ready && says(st.Reasons, "other routes")
	})
	advisories, err := p.js.Stream(t.Context(), store.Advisories)
	if err != nil {
		t.Fatal(err)
	}
	cfg := advisories.CachedInfo().Config
	cfg.Subjects = append(cfg.Subjects, store.TerminatedPrefix+"LOGS.*")
	logs := jetstream.StreamConfig{Name: "LOGS", Subjects: []string{"logs.>"}, Metadata: map[string]string{"fieldpost": "1"}}
	if _, err = p.js.UpdateStream(t.Context(), cfg); err == nil {
		_, err = p.js.CreateStream(t.Context(), logs)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.monitor.inspect(t.Context())
	st, err := r.admin().Status(t.Context())
	if err != nil || st.Ready || !says(st.Reasons, "other routes") || says(st.Notes, "orphaned") {
		t.Errorf("reasons %q, notes %q, %v", st.Reasons, st.Notes, err)
	}
	info, err := advisories.Info(t.Context())
	if err != nil || !slices.Equal(info.Config.Subjects, cfg.Subjects) {
		t.Errorf("subjects of ADVISORIES: %v, %v; the other instance had set %v", info.Config.Subjects, err, cfg.Subjects)
	}
}
