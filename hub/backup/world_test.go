package backup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/store"
)

var testLayout = store.Layout{
	BlocksMaxBytes: 64 << 20, DeadMaxAge: time.Hour, DeadMaxBytes: 8 << 20,
	Routes: []store.RouteStream{{Name: "EDGE", Subjects: []string{"edge.>"}, MaxAge: time.Hour, MaxBytes: 64 << 20, Compress: true}},
}

func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return c
}

// embedded opens a store that keeps its streams in dir.
func embedded(t testing.TB, dir string) *store.Store {
	t.Helper()
	return open(t, store.Config{Dir: dir, Offline: true, MaxStore: 1 << 30})
}

func open(t testing.TB, cfg store.Config) *store.Store {
	t.Helper()
	s, err := store.Open(ctx(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// cluster starts three servers. Somebody else may take a port before they do: then
// it tries others.
func cluster(t testing.TB, maxStore int64) (servers []*server.Server, urls []string) {
	t.Helper()
	for range 4 {
		servers, err := startCluster(t, maxStore)
		if err == nil {
			for _, s := range servers {
				urls = append(urls, s.ClientURL())
			}
			return servers, urls
		}
		t.Log(err)
	}
	t.Fatal("no cluster")
	return nil, nil
}

func startCluster(t testing.TB, maxStore int64) (servers []*server.Server, err error) {
	var routes []*url.URL
	var ports []int
	var listeners []net.Listener
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0") // each must know the others' ports beforehand
		if err != nil {
			return nil, err
		}
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
		listeners = append(listeners, l)
	}
	for _, l := range listeners {
		l.Close()
	}
	stop := func() {
		for _, s := range servers {
			s.Shutdown()
			s.WaitForShutdown()
		}
	}
	for i := range 3 {
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true,
			JetStream: true, StoreDir: t.TempDir(), SyncAlways: true, JetStreamMaxStore: maxStore, JetStreamMaxMemory: 1 << 26,
			Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: ports[i]}, Routes: routes,
		})
		if err != nil {
			stop()
			return nil, err
		}
		go s.Start()
		servers = append(servers, s)
	}
	for _, s := range servers {
		if !s.ReadyForConnections(30 * time.Second) {
			stop()
			return nil, errors.New("a server of the cluster does not start")
		}
	}
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		for _, s := range servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == 3 {
				t.Cleanup(stop)
				return servers, nil
			}
		}
	}
	stop()
	return nil, errors.New("the cluster has no leader")
}

// fill makes the streams of a hub that has worked. EDGE holds 999 messages of
// 3,000: none before 1100, from 2000 to 2899, or after 2998. The consumer work has
// been given 1100 to 1599, and has acked those up to 1500 and every second one after.
func fill(t testing.TB, s *store.Store) {
	t.Helper()
	c := ctx(t)
	if err := s.EnsureStreams(c, testLayout); err != nil {
		t.Fatal(err)
	}
	if _, err := s.HubID(c); err != nil {
		t.Fatal(err)
	}
	publish(t, s, "edge.a.x", 3000)
	js := s.JetStream()
	st, err := js.Stream(c, "EDGE")
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Purge(c, jetstream.WithPurgeSequence(1100)); err != nil {
		t.Fatal(err)
	}
	for seq := uint64(2000); seq < 2900; seq++ { // in the middle
		if err := st.DeleteMsg(c, seq); err != nil {
			t.Fatal(err)
		}
	}
	for _, seq := range []uint64{2999, 3000} { // at the end
		if err := st.DeleteMsg(c, seq); err != nil {
			t.Fatal(err)
		}
	}
	cons, err := js.CreateConsumer(c, "EDGE", jetstream.ConsumerConfig{Durable: "work", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 5, AckWait: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 500 {
		m := following(t, cons)
		meta, err := m.Metadata()
		if err == nil && meta.Sequence.Stream != 1100+uint64(n) {
			err = fmt.Errorf("message %d is %d", n, meta.Sequence.Stream)
		}
		if err == nil && (meta.Sequence.Stream <= 1500 || meta.Sequence.Stream%2 == 0) {
			err = m.DoubleAck(c)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.PublishBatch(c, []store.Msg{{Subject: "dead.EDGE.edge.a.x", Data: []byte("letter"), Header: nats.Header{"Fieldpost-Reason": {"max_deliver"}}}}); err != nil {
		t.Fatal(err)
	}
}

// following is what the consumer is given next. Its leader may not be known yet.
func following(t testing.TB, cons jetstream.Consumer) jetstream.Msg {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		m, err := cons.Next(jetstream.FetchMaxWait(5 * time.Second))
		if err == nil {
			return m
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// plain is a server that an operator runs.
func plain(t testing.TB) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not start")
	}
	return s.ClientURL()
}

func publish(t testing.TB, s *store.Store, subject string, n int) {
	t.Helper()
	for n > 0 {
		var msgs []store.Msg
		for i := range min(n, 1000) {
			msgs = append(msgs, store.Msg{Subject: subject, Header: nats.Header{"Unit": {"u"}}, Data: fmt.Appendf(nil, `{"n":%d,"left":%d}`, i, n)})
		}
		if _, err := s.PublishBatch(ctx(t), msgs); err != nil {
			t.Fatal(err)
		}
		n -= len(msgs)
	}
}

func save(t testing.TB, s *store.Store) (dir string, m Manifest) {
	t.Helper()
	dir = t.TempDir()
	m, err := Save(ctx(t), Config{Store: s, Dir: dir, Watch: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return dir, m
}
