package testenv

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// within is a context that ends with the test, or after a generous while.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestHubMovesToACluster: a hub with its own server becomes two hubs on a cluster
// of three, while devices publish. Nothing is lost, stored twice or reordered,
// unpacking goes on where it was, and so does a consumer.
func TestHubMovesToACluster(t *testing.T) {
	short(t)
	s, _ := seed(t)
	w := NewWorld(t, "")
	for i := range 2 {
		w.StartLoad(w.AddAgent(fmt.Sprintf("press-%d", i), ""), 4*time.Millisecond, s+uint64(i))
	}
	Eventually(t, 60*time.Second, "EDGE holds something", func() error { return w.edgeHolds(500) })
	acked := w.consumeHalf(t)
	w.Hub.Stop(60 * time.Second) // what is acked is in the consumer's file
	w.StartHub()
	Eventually(t, 60*time.Second, "EDGE goes on", func() error { return w.edgeHolds(uint64(len(acked)) + 600) })

	saved, cfg := filepath.Join(w.Dir, "saved"), filepath.Join(w.Dir, "hub.yaml")
	if out, err := verb(w.Binaries.Hub, "backup", saved, "-c", cfg); err == nil || !strings.Contains(err.Error(), "another hub is running") {
		t.Fatalf("a backup of a hub that runs: %v\n%s", err, out)
	}
	w.Hub.Kill()
	if out, err := verb(w.Binaries.Hub, "backup", saved, "-c", cfg); err != nil {
		t.Fatalf("backup: %v\n%s", err, out)
	}
	for _, a := range w.Agents { // they have a backlog now
		Eventually(t, 30*time.Second, a.Device+" keeps what it takes", func() error {
			if n, err := a.Backlog(); err != nil || n == 0 {
				return fmt.Errorf("%d, %v", n, err)
			}
			return nil
		})
	}

	c := newClusterAt(t, w.Dir, w.NATS)
	w.Servers = c.Addrs[1:]
	hubs := w.clusterHubs(c, 2)
	w.restoreKilled(t, saved)
	hubs[0].Start()
	if code := hubs[0].Wait(60 * time.Second); code == 0 {
		t.Fatal("a hub starts on half a restore")
	}
	if log := string(tail(hubs[0].log, 10_000)); !strings.Contains(log, "restore is unfinished") {
		t.Fatalf("a hub on half a restore says %s", log)
	}
	if out, err := verb(w.Binaries.Hub, "restore", saved, "-c", filepath.Join(w.Dir, "hub-0.yaml")); err != nil {
		t.Fatalf("restore: %v\n%s", err, out)
	}
	for _, h := range hubs {
		h.Start()
	}
	w.Hub = hubs[1]
	w.WaitHub()
	w.stopLoads()
	counts := w.Settle(120 * time.Second)
	if counts.Gone > 0 {
		t.Errorf("%v", counts)
	}
	w.consumeRest(t, acked)
}

// clusterHubs prepares hub instances on a cluster.
func (w *World) clusterHubs(c *Cluster, n int) (hubs []*Process) {
	for i := range n {
		name, http := fmt.Sprint("hub-", i), freeAddr(w.TB)
		cfg := w.write(name+".yaml", fmt.Sprintf("data_dir: %q\nnats: {urls: [\"nats://%s\"], max_store: 1GiB, replicas: 3}\nhttp: {listen: %q}\n",
			filepath.Join(w.Dir, name), strings.Join(c.Addrs, `","nats://`), http))
		hubs = append(hubs, NewProcess(w.TB, name, filepath.Join(w.Dir, name+".log"), w.Binaries.Hub, "run", "-c", cfg))
		w.HTTP = http
	}
	return hubs
}

// restoreKilled tries damaged backups, then kills a restore in the middle.
func (w *World) restoreKilled(t *testing.T, saved string) {
	t.Helper()
	ctx := within(t)
	js, closes, err := w.jetStream()
	if err != nil {
		t.Fatal(err)
	}
	defer closes()
	damaged := filepath.Join(w.Dir, "damaged")
	if err := os.CopyFS(damaged, os.DirFS(saved)); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(damaged, "*-EDGE.s2"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if err := os.Truncate(files[0], 5000); err != nil {
		t.Fatal(err)
	}
	cfg := filepath.Join(w.Dir, "hub-0.yaml")
	if out, err := verb(w.Binaries.Hub, "restore", damaged, "-c", cfg); err == nil || !strings.Contains(err.Error(), "use another backup") {
		t.Fatalf("a damaged backup: %v\n%s", err, out)
	}
	if names := js.StreamNames(ctx); len(drain(names.Name())) > 0 || names.Err() != nil {
		t.Fatalf("a damaged backup has made streams: %v", names.Err())
	}
	p := NewProcess(t, "restore", filepath.Join(w.Dir, "restore.log"), w.Binaries.Hub, "restore", saved, "-c", cfg)
	p.Start()
	Eventually(t, 60*time.Second, "one stream is restored", func() error {
		ctx, cancel := context.WithTimeout(ctx, time.Second) // a cluster forgets a request now and then
		defer cancel()
		kv, err := js.KeyValue(ctx, "fieldpost_restore")
		if err != nil {
			return err
		}
		e, err := kv.Get(ctx, "progress")
		if err != nil {
			return err
		}
		var v struct{ Done []string }
		if err := json.Unmarshal(e.Value(), &v); err != nil || len(v.Done) == 0 {
			return fmt.Errorf("%s: %v", e.Value(), err)
		}
		return nil
	})
	p.Kill()
}

func drain(names <-chan string) (out []string) {
	for n := range names {
		out = append(out, n)
	}
	return out
}

// consumeHalf reads and acks what a consumer is given, gives up three, and returns
// the sequences that it is done with.
func (w *World) consumeHalf(t *testing.T) (done []uint64) {
	t.Helper()
	ctx := within(t)
	js, closes, err := w.jetStream()
	if err != nil {
		t.Fatal(err)
	}
	defer closes()
	cons, err := js.CreateConsumer(ctx, "EDGE", jetstream.ConsumerConfig{Durable: "work", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := cons.Fetch(250, jetstream.FetchMaxWait(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for m := range batch.Messages() {
		meta, err := m.Metadata()
		if err == nil && len(done) < 3 {
			err = m.TermWithReason("not for me")
		} else if err == nil {
			err = m.DoubleAck(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		done = append(done, meta.Sequence.Stream)
	}
	if len(done) != 250 {
		t.Fatalf("%d messages: %v", len(done), batch.Error())
	}
	Eventually(t, 30*time.Second, "three are in DEAD", func() error { return deadLetters(ctx, js, 3) })
	return done
}

func deadLetters(ctx context.Context, js jetstream.JetStream, want int) error {
	n := 0
	err := eachMessage(ctx, js, "DEAD", "dead.EDGE.>", func(jetstream.Msg, uint64) error { n++; return nil })
	if err == nil && n != want {
		err = fmt.Errorf("%d letters", n)
	}
	return err
}

// consumeRest wants from the consumer all that it was not given before, each once.
func (w *World) consumeRest(t *testing.T, done []uint64) {
	t.Helper()
	ctx := within(t)
	js, closes, err := w.jetStream()
	if err != nil {
		t.Fatal(err)
	}
	defer closes()
	if err := deadLetters(ctx, js, 3); err != nil {
		t.Error(err)
	}
	edge, err := js.Stream(ctx, "EDGE")
	if err != nil {
		t.Fatal(err)
	}
	cons, err := edge.Consumer(ctx, "work")
	if err != nil {
		t.Fatal(err)
	}
	want, deadline := done[len(done)-1]+1, time.Now().Add(90*time.Second)
	for want <= edge.CachedInfo().State.LastSeq {
		batch, err := cons.Fetch(int(min(500, edge.CachedInfo().State.LastSeq-want+1)), jetstream.FetchMaxWait(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil || meta.Sequence.Stream != want || meta.NumDelivered != 1 {
				t.Fatalf("the consumer is given %+v, not %d: %v", meta, want, err)
			}
			if err := m.Ack(); err != nil {
				t.Fatal(err)
			}
			want++
		}
		if time.Now().After(deadline) { // its leader may not be known at once
			t.Fatalf("not all came; %d of %d: %v", want-1, edge.CachedInfo().State.LastSeq, batch.Error())
		}
	}
}
