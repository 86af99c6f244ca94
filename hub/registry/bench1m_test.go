package registry

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

var (
	benchDevices = flag.Int("devices", 1_000_000, "devices of BenchmarkRegistry1M")
	benchDir     = flag.String("devices-dir", "", "folder that BenchmarkRegistry1M fills once and reads again; empty: a new one")
)

// BenchmarkRegistry1M is what a million known devices cost: the server's start and
// heap, the registry's, and pages of the list. Everything is measured once.
func BenchmarkRegistry1M(b *testing.B) {
	n, dir := *benchDevices, *benchDir
	if dir == "" {
		dir = b.TempDir()
	}
	fillDevices(b, dir, n)
	heap0, rss0 := memory(b)
	began, spent := time.Now(), cpu(b)
	srv := serveDevices(b, dir, true)
	kv := devicesOf(b, srv)
	st, err := kv.Status(b.Context())
	if err != nil || st.Values() != uint64(n) {
		b.Fatalf("%v %v", st, err)
	}
	b.ReportMetric(time.Since(began).Seconds(), "s/server-start")
	b.ReportMetric(cpu(b)-spent, "cpu-s/server-start")
	heap1, rss1 := memory(b)
	b.ReportMetric((heap1-heap0)/float64(n), "server-heap-B/device")
	b.ReportMetric((rss1-rss0)/float64(n), "server-rss-B/device")

	began, spent = time.Now(), cpu(b)
	r, err := Open(b.Context(), Config{Bucket: kv, Instance: "h1", MaxDevices: n})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(time.Since(began).Seconds(), "s/ready")
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	for k := r.Numbers(); k.Online+k.Offline < n; k = r.Numbers() {
		time.Sleep(100 * time.Millisecond)
	}
	b.ReportMetric(time.Since(began).Seconds(), "s/complete")
	b.ReportMetric(cpu(b)-spent, "cpu-s/complete")
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	heap2, rss2 := memory(b)
	b.ReportMetric((heap2-heap1)/float64(n), "heap-B/device")
	b.ReportMetric((rss2-rss1)/float64(n), "rss-B/device")
	for _, p := range []struct{ name, after, filter string }{
		{"first", "", ""},
		{"page-5000", benchName(n / 2), ""},
		{"name", "", "9999"},
		{"label", benchName(n / 2), "site=site-77"},
		{"online", "", "state=online"},
	} {
		const rounds = 20
		spent := cpu(b)
		for range rounds {
			page := r.Devices(p.after, p.filter, 100)
			if p.filter != "state=online" && len(page.Devices) == 0 {
				b.Fatalf("%s: an empty page of %d", p.name, page.Total)
			}
		}
		b.ReportMetric((cpu(b)-spent)*1000/rounds, "cpu-ms/"+p.name)
	}
	spent = cpu(b)
	for range 20 {
		if page, err := r.Ranked(ByBacklog, benchName(n/2), "", 100); err != nil || len(page.Devices) == 0 {
			b.Fatal(page.Total, err)
		}
	}
	b.ReportMetric((cpu(b)-spent)*1000/20, "cpu-ms/backlog")
	spent = cpu(b)
	for range 100 {
		r.sweep()
		r.due(false)
		r.Numbers()
	}
	b.ReportMetric((cpu(b)-spent)*1000/100, "cpu-ms/second")
	b.ReportMetric(0, "ns/op")
	runtime.KeepAlive(r)
}

func benchName(i int) string { return fmt.Sprintf("press-%07d", i) }

// benchRecord is what the bucket holds of a device that has been there for long.
func benchRecord(i int) []byte {
	at := time.Date(2026, 5, 1, 12, 0, i%86400, i%1000*1e6, time.UTC)
	var history links
	for k := range maxLinks {
		history = history.with(k%2 == 0, linkKinds[2+(i+k)%6].Reason, at.Add(time.Duration(k-maxLinks)*7*time.Hour))
	}
	data, err := json.Marshal(record{Token: fmt.Sprintf("%08x", i), History: history, Device: admin.Device{
		Device: benchName(i), Created: at.Add(-1000 * time.Hour), Seen: at, Since: at, Started: at.Add(-50 * time.Hour),
		Version: "1.0." + strconv.Itoa(i%5), Process: fmt.Sprintf("%016x", i), Instance: "h" + strconv.Itoa(i%3),
		Epoch: wire.NewEpoch().String(), Class: "unmetered", Every: 30,
		Backlog: map[string]wire.LaneBacklog{"urgent": {}, "normal": {Messages: uint64(i % 7), Bytes: int64(i % 7 * 200)}, "bulk": {}},
		Disk:    admin.Disk{Used: int64(i) * 1000, Max: 1 << 30},
		Labels:  map[string]string{"site": "site-" + strconv.Itoa(i%500), "line": strconv.Itoa(i % 8)},
	}})
	if err != nil {
		panic(err) // of a record that is made here
	}
	return data
}

func fillDevices(b *testing.B, dir string, n int) {
	if _, err := os.Stat(filepath.Join(dir, "filled")); err == nil {
		return
	}
	srv := serveDevices(b, dir, false)
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4096))
	if err != nil {
		b.Fatal(err)
	}
	devicesOf(b, srv)
	for i := range n {
		if _, err := js.PublishAsync("$KV.fieldpost_devices."+benchName(i), benchRecord(i)); err != nil {
			b.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(10 * time.Minute):
		b.Fatal("the bucket is not filled")
	}
	srv.Shutdown()
	srv.WaitForShutdown()
	if err := os.WriteFile(filepath.Join(dir, "filled"), nil, 0o600); err != nil {
		b.Fatal(err)
	}
}

func serveDevices(b *testing.B, dir string, always bool) *server.Server {
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, JetStream: true,
		JetStreamMaxStore: 8 << 30, StoreDir: dir, SyncAlways: always})
	if err != nil {
		b.Fatal(err)
	}
	go srv.Start()
	b.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(5 * time.Minute) {
		b.Fatal("the server does not start")
	}
	return srv
}

func devicesOf(b *testing.B, srv *server.Server) jetstream.KeyValue {
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	kv, err := js.CreateOrUpdateKeyValue(b.Context(), jetstream.KeyValueConfig{Bucket: "fieldpost_devices"})
	if err != nil {
		b.Fatal(err)
	}
	return kv
}

// memory is the heap after a collection, and the resident memory where the system
// says it.
func memory(b *testing.B) (heap, rss float64) {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	for line := range strings.Lines(proc("status")) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			rss = number(b, f[1]) * 1024
		}
	}
	return float64(m.HeapAlloc), rss
}

// cpu is the processor time of this process in seconds, which other processes do
// not change; 0 where the system does not say it.
func cpu(b *testing.B) float64 {
	_, rest, _ := strings.Cut(proc("stat"), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0
	}
	return (number(b, f[11]) + number(b, f[12])) / 100 // Linux counts in 1/100 s
}

func proc(name string) string {
	data, err := os.ReadFile("/proc/self/" + name)
	if err != nil {
		return ""
	}
	return string(data)
}

func number(b *testing.B, s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		b.Fatal(err)
	}
	return v
}
