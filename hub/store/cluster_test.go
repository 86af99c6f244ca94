package store

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// cluster starts three servers and returns their client addresses. Somebody else
// may take a port before they do: then it tries others.
func cluster(t *testing.T) (urls []string) {
	t.Helper()
	for range 4 {
		urls, err := startCluster(t)
		if err == nil {
			return urls
		}
		t.Log(err)
	}
	t.Fatal("no cluster")
	return nil
}

func startCluster(t *testing.T) (urls []string, err error) {
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
	var servers []*server.Server
	stop := func() {
		for _, s := range servers {
			s.Shutdown()
			s.WaitForShutdown()
		}
	}
	for i := range 3 {
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true,
			JetStream: true, StoreDir: t.TempDir(), SyncAlways: true, JetStreamMaxStore: 1 << 30, JetStreamMaxMemory: 1 << 26,
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
		if !s.ReadyForConnections(15 * time.Second) {
			stop()
			return nil, errors.New("a server of the cluster does not start")
		}
		urls = append(urls, s.ClientURL())
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		for _, s := range servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == 3 {
				t.Cleanup(stop)
				return urls, nil
			}
		}
	}
	stop()
	return nil, errors.New("the cluster has no leader")
}

// The rules that the hub builds on hold for replicated streams too.
func TestClusterOfThree(t *testing.T) {
	urls := cluster(t)
	s, err := Open(ctx(t), Config{URLs: urls, Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := testLayout
	if err := s.EnsureStreams(ctx(t), l); err != nil {
		t.Fatal(err)
	}
	if have, err := s.JetStream().Stream(ctx(t), "EDGE"); err != nil || have.CachedInfo().Config.Compression != jetstream.NoCompression {
		t.Errorf("EDGE is compressed on replicas, which a kill can damage: %v", err)
	}
	if _, err := s.HubID(ctx(t)); err != nil {
		t.Fatal(err)
	}
	for range 3 { // batches in flight with predicted sequences
		info, err := s.Info(ctx(t), "EDGE")
		if err != nil {
			t.Fatal(err)
		}
		next := info.Last
		var all []*Pending
		for i := range 6 {
			msgs := make([]Msg, 1+i*40)
			for j := range msgs {
				msgs[j] = Msg{Subject: fmt.Sprintf("edge.a.%d", j%7), Header: nats.Header{}, Data: []byte("x")}
			}
			guard := next
			if i == 4 {
				guard += 3 // wrong: this one and the last must fail
			}
			msgs[0].Header.Set(GuardStream, strconv.FormatUint(guard, 10))
			p, err := s.StartBatch(msgs)
			if err != nil {
				t.Fatal(err)
			}
			all, next = append(all, p), next+uint64(len(msgs))
		}
		want := info.Last
		for i, p := range all {
			want += uint64(1 + i*40)
			last, err := p.Wait(ctx(t))
			if i < 4 && (err != nil || last != want) || i >= 4 && !errors.Is(err, ErrGuard) {
				t.Errorf("batch %d: %d, %v; want %d", i, last, err, want)
			}
		}
	}
	if _, err := s.PublishBatch(ctx(t), []Msg{msg(subjectA, "0", "1"), msg(subjectA, "", "2"), msg(subjectB, "0", "1")}); err != nil {
		t.Fatal(err)
	}
	for name, msgs := range map[string][]Msg{
		"single": {msg(subjectA, "1", "3")},
		"batch":  {msg(subjectB, "3", "3"), msg(subjectA, "1", "3")},
	} {
		if _, err := s.PublishBatch(ctx(t), msgs); !errors.Is(err, ErrGuard) {
			t.Errorf("%s: %v, want ErrGuard", name, err)
		}
	}
	if m, err := s.Last(ctx(t), Blocks, subjectA); err != nil || string(m.Data) != "2" {
		t.Errorf("Last: %+v, %v", m, err)
	}
	r, err := s.Reader(Blocks, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for want := uint64(1); want <= 3; {
		m, err := r.Next(ctx(t))
		if errors.Is(err, ErrNotFound) { // the replica that answered lags
			if err := r.Wait(ctx(t)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err != nil || m.Seq != want {
			t.Fatalf("read %d, %v; want %d", m.Seq, err, want)
		}
		want++
	}
}

// plainServer is a server that an operator runs.
func plainServer(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), SyncAlways: true, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	return s.ClientURL()
}

// TestStreamRequestIsRepeated: a cluster that chooses a leader forgets requests.
func TestStreamRequestIsRepeated(t *testing.T) {
	plain, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	plain.Start()
	defer func() { plain.Shutdown(); plain.WaitForShutdown() }()
	if !plain.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	nc, err := nats.Connect(plain.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	asked := 0
	_, err = nc.Subscribe("$JS.API.STREAM.*.TEST", func(m *nats.Msg) {
		if strings.Contains(m.Subject, ".INFO.") {
			m.Respond([]byte(`{"error":{"code":404,"err_code":10059,"description":"stream not found"}}`))
		} else if asked++; asked == 2 {
			m.Respond([]byte(`{"config":{"name":"TEST","num_replicas":1},"state":{}}`))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s := &Store{js: js, cfg: Config{Timeout: 200 * time.Millisecond, Log: slog.New(slog.DiscardHandler)}}
	if err := s.ensure(ctx(t), jetstream.StreamConfig{Name: "TEST"}); err != nil || asked != 2 {
		t.Fatalf("asked %d times: %v", asked, err)
	}
}
