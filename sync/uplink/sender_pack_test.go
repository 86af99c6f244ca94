package uplink

import (
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

func TestStreamHasABudget(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	p := packer{stream: wire.NewStreamEncoder()}
	for _, c := range []struct {
		name  string
		spend float64
		later time.Duration
		rate  float64
		want  bool
	}{
		{"at first", 0, 0, 0, true},
		{"all but a byte", streamBurst - 1, 0, 1e6, true},
		{"all", 1, 0, 1e6, false},
		{"all, the rate unknown", 0, 0, 0, false},
		{"all, on a slow link", 0, 0, slowest - 1, false},
		{"more than all", streamRate + 10, 0, 1e6, false},
		{"a second later", 0, time.Second, 1e6, false},
		{"another one later", 0, time.Second, 1e6, true},
		{"two seconds' worth spent again", 2 * streamRate, 0, 1e6, false},
		{"a second later", 0, time.Second, 1e6, false},
		{"half a second later on a slow link", 0, time.Second / 2, slowest - 1, true},
		{"an hour later", 0, time.Hour, 1e6, true},
	} {
		p.spent += c.spend
		now = now.Add(c.later)
		if got := p.streams(now, c.rate); got != c.want {
			t.Errorf("%s: %t, want %t; %.0f spent", c.name, got, c.want, p.spent)
		}
	}
	if p.stream = nil; p.streams(now, 0) {
		t.Error("a stream that the hub does not read")
	}
}

// TestFloodLeavesTheStream publishes more than the stream's share, all acked at
// once, and then little again.
func TestFloodLeavesTheStream(t *testing.T) {
	p := &senderScript{t: t, now: time.Unix(1_800_000_000, 0), spool: newFakeSpool(), policy: &scriptPolicy{}}
	p.start()
	run := func(lines ...string) string {
		p.out = nil
		for _, l := range lines {
			p.command(strings.Fields(l))
		}
		return strings.Join(p.out, "\n")
	}
	run("append normal 1", "up", "open stream="+wire.StreamName)
	publish := func() string {
		at := p.s.counter
		out := run("append normal 10 size=1000")
		p.now = p.now.Add(time.Millisecond)
		for n := at + 1; n <= p.s.counter; n++ {
			p.step(Acked{p.session(nil), &wire.Ack{Counter: n, Flows: []wire.FlowReceived{{
				Flow: p.flow("e1/normal"), Ranges: wire.Ranges{{First: 1, Last: p.spool.flow(wire.Normal).last}}}}}})
		}
		return out
	}
	streams, blocks := 0, 0
	for range 100 {
		out := publish()
		streams += strings.Count(out, "stream e1")
		blocks += strings.Count(out, "block e1")
	}
	if streams == 0 || blocks < 2*streams {
		t.Errorf("a flood of 1 MB: %d frames of the stream, %d blocks", streams, blocks)
	}
	run("tick 10s")
	if out := publish(); strings.Contains(out, "block e1") || !strings.Contains(out, "stream e1") {
		t.Errorf("after the flood: %s", out)
	}
}

// TestFloodGoesVerbatim: which blocks go as the spool holds them.
func TestFloodGoesVerbatim(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		name  string
		size  int
		spent float64
		rate  float64
		tight bool
		class string
		age   time.Duration
		want  bool
	}{
		{"a flood", floodBlock, streamBurst, slowRate, false, "", 0, true},
		{"small blocks", floodBlock - 1, streamBurst, slowRate, false, "", 0, false},
		{"no flood", floodBlock, streamBurst - 1, slowRate, false, "", 0, false},
		{"a slow link", floodBlock, streamBurst, slowRate - 1, false, "", 0, false},
		{"a full link", floodBlock, streamBurst, slowRate, true, "", 0, false},
		{"a metered link", floodBlock, streamBurst, slowRate, false, Metered, 0, false},
		{"a backlog", floodBlock, streamBurst, slowRate, false, "", keepingUp, false},
		{"large blocks", verbatim, 0, slowRate, false, Metered, time.Hour, true},
	} {
		s := NewSender(SenderConfig{})
		s.now, s.class = now, c.class
		s.window = newWindow(1<<20, 1<<20, time.Millisecond)
		s.window.rates[0], s.window.tight = c.rate, c.tight
		s.pack = packer{stream: wire.NewStreamEncoder(), spent: c.spent, at: now}
		h := wire.Header{Kind: wire.KindMessages, Count: 10, Accepted: now.Add(-c.age).UnixMilli()}
		if got := !s.repack(c.size, &h); got != c.want {
			t.Errorf("%s: verbatim is %t", c.name, got)
		}
	}
}

// TestChunkedBlocksAreBounded: what a hub has taken in of large blocks is in its
// memory, so no more begin than it bears with until some are acked.
func TestChunkedBlocksAreBounded(t *testing.T) {
	p := &senderScript{t: t, now: time.Unix(1_800_000_000, 0), spool: newFakeSpool(), policy: &scriptPolicy{}}
	p.start()
	for _, line := range []string{"append bulk 1 size=8000000", "up", "open max=1000000", "append normal 1 size=8000000", "append urgent 1 size=8000000"} {
		p.command(strings.Fields(line))
	}
	taken := uint64(0)
	takeIn := func() { // all chunks, but nothing is stored
		for taken < p.s.counter {
			taken = p.s.counter
			p.now = p.now.Add(time.Second)
			p.step(Acked{p.session(nil), &wire.Ack{Counter: taken}})
		}
	}
	begun := func() int { return strings.Count(strings.Join(p.out, "\n"), "begins") }
	ends := func() int { return strings.Count(strings.Join(p.out, "\n"), " 0 left") }
	if takeIn(); begun() != 2 || ends() != 1 {
		t.Fatalf("%d blocks have begun and %d are sent, none is stored", begun(), ends())
	}
	for i, flow := range []string{"e1/urgent", "e1/normal", "e1/bulk"} {
		p.step(Acked{p.session(nil), &wire.Ack{Counter: taken, Flows: []wire.FlowReceived{{Flow: p.flow(flow), Ranges: wire.Ranges{{First: 1, Last: 1}}}}}})
		if takeIn(); begun() != 3 || ends() != min(i+2, 3) {
			t.Errorf("%d blocks have begun and %d are sent, %d are stored", begun(), ends(), i+1)
		}
	}
	if p.s.slots.bytes != 0 {
		t.Errorf("%d bytes are counted at the end", p.s.slots.bytes)
	}
}

func TestFramesAreLimited(t *testing.T) {
	for limit, want := range map[int]int{0: frameMost, 5000: 5000, 10: frameLeast, 1 << 30: frameMost} {
		p := &senderScript{t: t, now: time.Unix(1_800_000_000, 0), spool: newFakeSpool(), policy: &scriptPolicy{}, cfg: SenderConfig{MaxFrame: limit}}
		p.start()
		for _, line := range []string{"append normal 1", "up", "open"} {
			p.command(strings.Fields(line))
		}
		if got := p.s.window.most; got != want {
			t.Errorf("a limit of %d: frames of %d, want %d", limit, got, want)
		}
	}
}
