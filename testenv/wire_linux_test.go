package testenv

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/agent/client"
)

// corpora lie beside the repository and are absent elsewhere.
const corpora = "../../shared/corpora"

// envCorpora names the folder where they are looked for instead.
const envCorpora = "FIELDPOST_CORPORA"

func corpusFiles(tb testing.TB) []string {
	files, _ := filepath.Glob(filepath.Join(cmp.Or(os.Getenv(envCorpora), corpora), "*.ndjson.gz"))
	if len(files) == 0 {
		tb.Skip("no corpora beside the repository")
	}
	return files
}

// corpus reads at most limit messages of a real stream.
func corpus(tb testing.TB, file string, limit int) (out []client.Message) {
	f, err := os.Open(file)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	for s := bufio.NewScanner(z); s.Scan() && len(out) < limit; {
		var l struct {
			TS      int64
			Subject string
			Payload string
			B64     []byte `json:"payload_b64"`
		}
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			tb.Fatal(err)
		}
		if l.B64 == nil {
			l.B64 = []byte(l.Payload)
		}
		out = append(out, client.Message{Subject: l.Subject, Payload: l.B64, Time: time.UnixMilli(l.TS)})
	}
	return out
}

// wireModes are how messages come: each waits for the one before to be in the
// hub, or 16 do; or all were published while the link was cut, and the link is
// fast then, or one of 128 kbit/s, over which no leaf node is sent.
var wireModes = []struct {
	name            string
	flush, messages int
	slow            bool
}{{"trickle", 1, 500, false}, {"16 per flush", 16, 1600, false}, {"backlog", 0, 1 << 30, false}, {"slow backlog", 0, 1 << 30, true}}

// perMessage are bytes at the TCP socket for each message.
type perMessage struct{ up, down float64 }

func (p perMessage) both() float64 { return p.up + p.down }

func (p *Proxy) since(up, down int64, n int) perMessage {
	return perMessage{float64(p.Bytes(Up)-up) / float64(n), float64(p.Bytes(Down)-down) / float64(n)}
}

// wireTable collects what is reported, and the logarithms of the ratios.
type wireTable struct {
	text strings.Builder
	tw   *tabwriter.Writer
	logs map[string][]float64
}

// ratio notes one to something else, if that was measured.
func (t *wireTable) ratio(b *testing.B, name, to string, ours, theirs float64) string {
	if theirs == 0 {
		return "-"
	}
	b.ReportMetric(ours/theirs, to)
	if !strings.HasPrefix(name, "random") {
		t.logs[to] = append(t.logs[to], math.Log(ours/theirs))
	}
	return fmt.Sprintf("%.3f", ours/theirs)
}

// means ends a mode.
func (t *wireTable) means(mode string) {
	if len(t.logs) == 0 {
		return // it was not run
	}
	mean := func(to string) string {
		sum := 0.0
		for _, l := range t.logs[to] {
			sum += l
		}
		if len(t.logs[to]) == 0 {
			return "-"
		}
		return fmt.Sprintf("%.3f", math.Exp(sum/float64(len(t.logs[to]))))
	}
	fmt.Fprintf(t.tw, "%s\tgeometric mean\t\t\t\t\t%s\t\t%s\t\n", mode, mean("leaf-ratio"), mean("zstd-ratio"))
	clear(t.logs)
}

// BenchmarkWire counts the bytes at the TCP socket, acks, pings and, after a
// cut, the connection's opening included; beside it a NATS leaf node with
// s2_best that carries the same messages on the same subjects, and, for a
// backlog, zstd -19 --long of one file of all. Run it once: -benchtime 1x.
func BenchmarkWire(b *testing.B) {
	files := corpusFiles(b)
	t := wireTable{logs: make(map[string][]float64)}
	t.tw = tabwriter.NewWriter(&t.text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t.tw, "mode\tcorpus\tup B\tdown B\tboth B\tleaf B\tratio\tzstd B\tratio\t")
	for _, mode := range wireModes {
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".ndjson.gz")
			if mode.slow && strings.HasPrefix(name, "random") {
				continue // a minute
			}
			b.Run(strings.ReplaceAll(mode.name, " ", "-")+"/"+name, func(b *testing.B) {
				ms := corpus(b, file, mode.messages)
				mine, leaf, whole := agentBytes(b, ms, mode.flush, mode.slow), perMessage{}, 0.0
				if !mode.slow {
					leaf = leafBytes(b, ms, mode.flush)
				}
				if mode.flush == 0 {
					whole = zstdBytes(b, ms)
				}
				b.ReportMetric(mine.up, "up-B/msg")
				b.ReportMetric(mine.down, "down-B/msg")
				b.ReportMetric(leaf.both(), "leaf-B/msg")
				fmt.Fprintf(t.tw, "%s\t%s\t%.1f\t%.1f\t%.1f\t%.1f\t%s\t%.1f\t%s\t\n", mode.name, name, mine.up, mine.down, mine.both(),
					leaf.both(), t.ratio(b, name, "leaf-ratio", mine.both(), leaf.both()), whole, t.ratio(b, name, "zstd-ratio", mine.both(), whole))
			})
		}
		t.means(mode.name)
	}
	t.tw.Flush()
	fmt.Printf("\nbytes a message at the TCP socket; the means leave random-200B out\n%s\n", &t.text) // a log of a parent is not shown
}

// zstdBytes is what a message takes in zstd -19 --long of one file: of each
// message the length and text of its subject, ms since the one before, and
// length and bytes of the payload, all numbers as varints. 0: there is no zstd.
func zstdBytes(b *testing.B, ms []client.Message) float64 {
	var text []byte
	last := int64(0)
	for _, m := range ms {
		at := m.Time.UnixMilli()
		text = append(binary.AppendUvarint(text, uint64(len(m.Subject))), m.Subject...)
		text = binary.AppendVarint(text, at-last)
		text = append(binary.AppendUvarint(text, uint64(len(m.Payload))), m.Payload...)
		last = at
	}
	cmd := exec.CommandContext(b.Context(), "zstd", "-19", "--long=27", "-c")
	cmd.Stdin = bytes.NewReader(text)
	out, err := cmd.Output()
	if err != nil {
		b.Logf("no comparison with zstd -19 --long; install zstd: %v", err)
	}
	return float64(len(out)) / float64(len(ms))
}

func agentBytes(b *testing.B, ms []client.Message, flush int, slow bool) perMessage {
	w := NewWorld(b, "")
	defer w.Hub.Kill()
	a := w.AddAgent("press-7", "")
	defer a.Kill()
	c, err := client.Dial(b.Context(), a.Socket)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	publish := func(ms []client.Message, ack client.Ack) {
		pending := make([]*client.Pending, 0, len(ms))
		for _, m := range ms {
			m.Ack = ack
			pending = append(pending, c.PublishAsync(m))
		}
		for _, p := range pending {
			if r, err := p.Wait(b.Context()); err != nil || ack == client.Hub && !r.Hub {
				b.Fatalf("%+v, %v", r, err)
			}
		}
	}
	publish([]client.Message{{Subject: "warm.up", Payload: []byte("x")}}, client.Hub)
	link := a.Link
	if flush == 0 {
		link.Cut(true)
		publish(ms, client.Disk)
		up, down := link.Bytes(Up), link.Bytes(Down)
		if slow {
			link.ShapeLike(profile(16_000, 200*time.Millisecond))
		}
		link.Cut(false)
		w.Drain(5 * time.Minute)
		return link.since(up, down, len(ms))
	}
	nc, err := nats.Connect("nats://" + w.NATS)
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	stored, err := nc.SubscribeSync("edge.>")
	if err == nil {
		err = nc.Flush()
	}
	up, down := link.Bytes(Up), link.Bytes(Down)
	for i := 0; i < len(ms) && err == nil; i += flush {
		part := ms[i:min(i+flush, len(ms))]
		publish(part, client.Disk)
		for n := 0; n < len(part) && err == nil; n++ { // unpacked
			_, err = stored.NextMsg(10 * time.Second)
		}
	}
	if err != nil {
		b.Fatal(err)
	}
	w.Drain(time.Minute) // the last acks
	return link.since(up, down, len(ms))
}

// leafPair is a NATS hub, a leaf node, and the counting link between them.
type leafPair struct {
	hub, leaf jetstream.JetStream
	link      *Proxy
}

func newLeafPair(b *testing.B) leafPair {
	s2 := server.CompressionOpts{Mode: server.CompressionS2Best}
	run := func(o *server.Options) *server.Server {
		o.Host, o.Port, o.NoLog, o.NoSigs, o.JetStream, o.StoreDir = "127.0.0.1", -1, true, true, true, b.TempDir()
		s, err := server.NewServer(o)
		if err != nil {
			b.Fatal(err)
		}
		s.Start()
		if !s.ReadyForConnections(10 * time.Second) {
			b.Fatal("the NATS server does not start")
		}
		b.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		return s
	}
	port := freeAddr(b)
	_, number, _ := strings.Cut(port, ":")
	lo := server.LeafNodeOpts{Host: "127.0.0.1", Compression: s2, NoAdvertise: true} // else it comes back past the proxy
	fmt.Sscan(number, &lo.Port)
	hub := run(&server.Options{ServerName: "hub", JetStreamDomain: "hub", LeafNode: lo})
	link, err := NewProxy(port)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(link.Close)
	remote := &server.RemoteLeafOpts{URLs: []*url.URL{{Scheme: "nats-leaf", Host: link.Addr()}}, Compression: s2}
	leaf := run(&server.Options{ServerName: "leaf", JetStreamDomain: "leaf",
		LeafNode: server.LeafNodeOpts{ReconnectInterval: 100 * time.Millisecond, Remotes: []*server.RemoteLeafOpts{remote}}})
	Eventually(b, 20*time.Second, "the leaf is connected", func() error {
		if hub.NumLeafNodes() == 0 {
			return fmt.Errorf("no leaf node")
		}
		return nil
	})
	connect := func(s *server.Server) jetstream.JetStream {
		nc, err := nats.Connect(s.ClientURL())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(nc.Close)
		js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1<<20))
		if err != nil {
			b.Fatal(err)
		}
		return js
	}
	return leafPair{connect(hub), connect(leaf), link}
}

// leafBytes carries the messages over a leaf node: published to the hub's stream
// and acked by it, or, for a backlog, kept in the leaf's stream and sourced by
// the hub.
func leafBytes(b *testing.B, ms []client.Message, flush int) perMessage {
	p := newLeafPair(b)
	subjects := []string{"edge.press-7.>"}
	stream := func(js jetstream.JetStream, c jetstream.StreamConfig) jetstream.Stream {
		s, err := js.CreateStream(b.Context(), c)
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	subject := func(m client.Message) string { return "edge.press-7." + m.Subject }
	publish := func(js jetstream.JetStream, ms []client.Message) {
		for _, m := range ms {
			if _, err := js.PublishAsync(subject(m), m.Payload); err != nil {
				b.Fatal(err)
			}
		}
		<-js.PublishAsyncComplete()
	}
	if flush == 0 {
		stream(p.leaf, jetstream.StreamConfig{Name: "EDGE", Subjects: subjects})
		p.link.Cut(true)
		publish(p.leaf, ms)
		up, down := p.link.Bytes(Up), p.link.Bytes(Down)
		got := stream(p.hub, jetstream.StreamConfig{Name: "ALL", Sources: []*jetstream.StreamSource{
			{Name: "EDGE", External: &jetstream.ExternalStream{APIPrefix: "$JS.leaf.API"}}}})
		p.link.Cut(false)
		Eventually(b, 2*time.Minute, "the hub has the backlog", func() error {
			info, err := got.Info(b.Context())
			if err == nil && info.State.Msgs < uint64(len(ms)) {
				err = fmt.Errorf("%d of %d", info.State.Msgs, len(ms))
			}
			return err
		})
		return p.link.since(up, down, len(ms))
	}
	stream(p.hub, jetstream.StreamConfig{Name: "EDGE", Subjects: subjects})
	Eventually(b, 20*time.Second, "the hub's stream answers the leaf", func() error {
		_, err := p.leaf.Publish(b.Context(), "edge.press-7.warm.up", nil)
		return err
	})
	up, down := p.link.Bytes(Up), p.link.Bytes(Down)
	for i := 0; i < len(ms); i += flush {
		publish(p.leaf, ms[i:min(i+flush, len(ms))])
	}
	return p.link.since(up, down, len(ms))
}
