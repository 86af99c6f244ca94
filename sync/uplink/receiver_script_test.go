package uplink

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

var updateReceiver = flag.Bool("update-receiver", false, "rewrite the golden scripts of the receiver")

// TestReceiverScripts runs testdata/receiver/*.txt. A script is cases separated
// by empty lines: commands, a line ----, the expected actions. After the
// commands of a case the receiver gets a tick.
func TestReceiverScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/receiver/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runReceiverScript(t, string(text))
			if *updateReceiver {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("%s: the actions differ (go test -update-receiver rewrites it)\n--- want\n%s\n--- got\n%s", file, text, got)
			}
		})
	}
}

func runReceiverScript(t *testing.T, text string) string {
	p := &receiverScript{t: t, streams: map[string]*wire.StreamEncoder{}, now: time.Unix(1_800_000_000, 0)}
	p.r = NewReceiver(ReceiverConfig{HubID: "hub1"})
	var out []string
	for _, c := range strings.Split(strings.TrimSpace(text), "\n\n") {
		commands, _, _ := strings.Cut(c, "\n----")
		p.out = nil
		tick := true
		for _, line := range strings.Split(commands, "\n") {
			if line == "" || line[0] == '#' {
				continue
			}
			tick = p.command(line) && tick
		}
		if tick {
			p.step(RecvTick{})
		}
		out = append(out, strings.Join(append([]string{commands, "----"}, p.out...), "\n"))
	}
	return strings.Join(out, "\n\n") + "\n"
}

type receiverScript struct {
	t   *testing.T
	r   *Receiver
	now time.Time
	req uint64
	out []string

	streams map[string]*wire.StreamEncoder // by session
	last    RecvFrame

	reads   []DoRead   // under way
	batches []DoCommit // under way
}

func (p *receiverScript) step(ev RecvEvent) {
	for _, a := range p.r.Step(p.now, ev) {
		p.out = append(p.out, printRecvAction(a))
		switch a := a.(type) {
		case DoRead:
			p.reads = append(p.reads, a)
		case DoCommit:
			p.batches = append(p.batches, a)
			for _, m := range a.Blocks {
				p.stored(m)
			}
		}
	}
}

// command runs one line; it returns false if the case ends without a tick.
func (p *receiverScript) command(line string) bool {
	f := strings.Fields(line)
	args := f[1:]
	opt := map[string]string{}
	for i := 0; i < len(args); i++ {
		if k, v, ok := strings.Cut(args[i], "="); ok && k != "flow" {
			opt[k] = v
			args = append(args[:i:i], args[i+1:]...)
			i--
		}
	}
	switch f[0] {
	case "config": // window=… batches=… sessions=…
		p.configure(opt)
	case "open": // DEVICE SESSION process=P [order= class= hub= token=] [flow=E/LANE:BASE:FIRST:LAST …]
		p.req++
		p.step(RecvOpen{Request: p.req, Device: args[0], Session: testSession(args[1]), Data: p.openData(args[2:], opt)})
	case "block": // DEVICE SESSION COUNTER E/LANE FIRST-LAST [base= size=]
		p.frame(args, wire.FrameBlock, p.block(args[3], args[4], opt, 0))
	case "void":
		p.frame(args, wire.FrameBlock, p.block(args[3], args[4], opt, wire.ReasonTTL))
	case "corrupt": // the same, with one bit flipped
		b := p.block(args[3], args[4], opt, 0)
		b[len(b)-1] ^= 4
		p.frame(args, wire.FrameBlock, b)
	case "chunk": // a block's bytes from=N to=N slot=N, and the rest is left=N
		p.frame(args, wire.FrameChunk, p.chunk(p.block(args[3], args[4], opt, 0), opt))
	case "stream": // as block, in the session's stream; flip=OFFSET: with a bit of that byte flipped
		b := p.stream(args, opt)
		if v := opt["flip"]; v != "" {
			b[p.number(v)] ^= 4
		}
		p.frame(args, wire.FrameStream, b)
	case "again": // the last frame comes again
		p.step(p.last)
	case "skip": // as stream, but the frame is lost
		p.stream(args, opt)
	case "ping":
		p.frame(args, wire.FramePing, nil)
	case "confirm":
		p.frame(args, wire.FrameConfirm, []byte(args[3]))
	case "drained":
		e := testEpoch(args[3])
		p.frame(args, wire.FrameDrained, e[:])
	case "bye":
		p.frame(args, wire.FrameBye, nil)
	case "frame": // DEVICE SESSION COUNTER TYPE [TEXT]
		n, _ := strconv.Atoi(args[3])
		p.frame(args, wire.FrameType(n), []byte(strings.Join(args[4:], "")))
	case "bytes": // DEVICE TEXT: no frame at all
		p.step(RecvFrame{Device: args[0], Data: []byte(args[1])})
	case "read": // DEVICE E/LANE [last=N received=RANGES] [fail]: answers that read
		p.answerRead(args, opt)
	case "done": // DEVICE stored last=N | guard | unknown | full | refused: ends the batch with a block of it
		p.answerBatch(args, opt)
	case "advance":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			p.t.Fatal(err)
		}
		p.now = p.now.Add(d)
	case "stop":
		p.step(RecvStop{Now: len(args) > 0})
	case "load":
		d, s, q := p.r.Load()
		p.out = append(p.out, fmt.Sprintf("load devices=%d sessions=%d queued=%v idle=%v", d, s, q > 0, p.r.Idle()))
	case "hold": // no tick after this case
		return false
	default:
		p.t.Fatalf("unknown command %q", line)
	}
	return true
}

// fail reports a mistake of the script, in its place in the output too.
func (p *receiverScript) fail(format string, a ...any) {
	msg := fmt.Sprintf(format, a...)
	p.out = append(p.out, "error: "+msg)
	p.t.Error(msg)
}

func (p *receiverScript) answerRead(args []string, opt map[string]string) {
	flow := testFlow(p.t, args[1])
	i := slices.IndexFunc(p.reads, func(a DoRead) bool { return a.Device == args[0] && a.Flow == flow })
	if i < 0 {
		p.fail("no read of %s %s is under way", args[0], args[1])
		return
	}
	ev := RecvRead{Read: p.reads[i].Read, Last: p.number(opt["last"])}
	p.reads = slices.Delete(p.reads, i, i+1)
	var err error
	if ev.Received, err = wire.ParseRanges(opt["received"]); err != nil {
		p.t.Fatal(err)
	}
	if len(args) > 2 {
		ev.Err = errors.New("no leader")
	}
	p.step(ev)
}

func (p *receiverScript) answerBatch(args []string, opt map[string]string) {
	outcomes := map[string]Outcome{"stored": OutcomeStored, "guard": OutcomeGuard, "unknown": OutcomeUnknown, "full": OutcomeFull, "toolarge": OutcomeTooLarge, "refused": OutcomeRefused}
	how, ok := outcomes[args[1]]
	i := slices.IndexFunc(p.batches, func(a DoCommit) bool {
		return slices.ContainsFunc(a.Blocks, func(b LedgerBlock) bool { return b.Device == args[0] })
	})
	if i < 0 || !ok {
		p.fail("done %v: no such batch is under way, or no such outcome", args)
		return
	}
	ev := RecvDone{Batch: p.batches[i].Batch, Last: p.number(opt["last"]), Outcome: how}
	p.batches = slices.Delete(p.batches, i, i+1)
	p.step(ev)
}

func (p *receiverScript) configure(opt map[string]string) {
	c := ReceiverConfig{HubID: "hub1"}
	for k, v := range opt {
		n := int(p.number(v))
		switch k {
		case "window":
			c.Window = n
		case "batches":
			c.MaxBatches = n
		case "blocks":
			c.BatchBlocks = n
		case "queued":
			c.MaxQueued = int64(n)
		case "burst":
			c.OpenBurst = n
		case "flows":
			c.MaxFlows = n
		case "maxblock":
			c.MaxBlock = n
		case "chunked":
			c.MaxChunked = int64(n)
		default:
			p.t.Fatalf("unknown setting %q", k)
		}
	}
	p.r = NewReceiver(c)
}

func (p *receiverScript) number(s string) uint64 {
	if s == "" {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *receiverScript) openData(flows []string, opt map[string]string) []byte {
	if opt["raw"] != "" {
		return []byte(opt["raw"])
	}
	o := wire.Open{
		Protocol: wire.Protocol, Version: "1", Process: opt["process"], HubID: opt["hub"],
		Order: opt["order"], Class: opt["class"], Token: opt["token"],
		Attempt: p.number(opt["attempt"]),
	}
	if o.Order == "" {
		o.Order = "fifo"
	}
	if v := opt["protocol"]; v != "" {
		o.Protocol = int(p.number(v))
	}
	for _, f := range flows {
		part := strings.Split(strings.TrimPrefix(f, "flow="), ":")
		o.Flows = append(o.Flows, wire.FlowHeld{Flow: testFlow(p.t, part[0]), Base: p.number(part[1]), First: p.number(part[2]), Last: p.number(part[3])})
	}
	data, err := json.Marshal(o)
	if err != nil {
		p.t.Fatal(err)
	}
	return data
}

func (p *receiverScript) frame(args []string, t wire.FrameType, body []byte) {
	data := wire.AppendFrame(nil, wire.Frame{
		Type: t, Session: testSession(args[1]), Counter: p.number(args[2]), Body: body,
		Lazy: slices.Contains(args, "lazy"), Backfill: slices.Contains(args, "backfill"),
	})
	p.last = RecvFrame{Device: args[0], Data: data}
	p.step(p.last)
}

// stream encodes the block that args name as the next frame of the session's stream.
func (p *receiverScript) stream(args []string, opt map[string]string) []byte {
	e := p.streams[args[1]]
	if e == nil {
		e = wire.NewStreamEncoder()
		p.streams[args[1]] = e
	}
	b, err := wire.NewDecoder().Decode(p.block(args[3], args[4], opt, 0), true)
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := e.Append(nil, b)
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// stored checks that a block goes to the ledger as a block, whatever it came as.
func (p *receiverScript) stored(m LedgerBlock) {
	h, err := wire.ParseHeader(m.Data)
	if err == nil && h.Kind == wire.KindMessages {
		var b *wire.Block
		if b, err = wire.NewDecoder().Decode(m.Data, true); err == nil && string(b.Messages[len(b.Messages)-1].Payload) != fmt.Sprintf("%s#%d", m.Flow, m.Range.Last) && m.Range.Len() > 1 {
			err = errors.New("not the payload that was sent")
		}
	}
	if err != nil || h.Flow != m.Flow || h.Range() != m.Range || h.Reason != m.Void {
		p.fail("%s %s goes to the ledger as %s %s: %v", printFlow(m.Flow), m.Range, h.Flow, h.Range(), err)
	}
}

func (p *receiverScript) chunk(block []byte, opt map[string]string) []byte {
	from, to := p.number(opt["from"]), uint64(len(block))
	if v := opt["to"]; v != "" {
		to = p.number(v)
	}
	c := wire.Chunk{Slot: uint8(p.number(opt["slot"])), First: from == 0, Left: uint64(len(block)) - to, Data: block[from:to]}
	if v := opt["left"]; v != "" {
		c.Left = p.number(v)
	}
	return wire.AppendChunk(nil, c)
}

func (p *receiverScript) block(flow, span string, opt map[string]string, void wire.Reason) []byte {
	first, last, _ := strings.Cut(span, "-")
	r := wire.Range{First: p.number(first), Last: p.number(last)}
	base := uint64(1)
	if v := opt["base"]; v != "" {
		base = p.number(v)
	}
	return testBlock(p.t, testFlow(p.t, flow), base, r, void, int(p.number(opt["size"])))
}

// testBlock encodes a block of small messages, or a void.
func testBlock(t testing.TB, f wire.Flow, base uint64, r wire.Range, void wire.Reason, size int) []byte {
	h := wire.Header{Flow: f, Base: base, First: r.First, Count: r.Len(), Accepted: 1_800_000_000_000, Reason: void}
	var data []byte
	var err error
	if void != 0 {
		data, err = wire.AppendVoid(nil, h)
	} else {
		h.Kind = wire.KindMessages
		b := &wire.Block{Header: h, Messages: make([]wire.Message, r.Len())}
		for i := range b.Messages {
			b.Messages[i] = wire.Message{Subject: "a.b", Payload: fmt.Appendf(nil, "%s#%d", f, r.First+uint64(i)), Time: h.Accepted}
		}
		if size > 0 {
			b.Messages[0].Payload = noise(size)
		}
		data, err = testEncoder.Append(nil, b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return data
}

var testEncoder = wire.NewEncoder(wire.Fast)

// noise is bytes that do not compress.
func noise(n int) []byte {
	out, x := make([]byte, n), uint64(88172645463325252)
	for i := range out {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		out[i] = byte(x)
	}
	return out
}

// testSession, testEpoch and testFlow read s7, e7 and e7/normal.
func testSession(s string) wire.SessionID { return wire.SessionID(testEpoch(s)) }

func testEpoch(s string) (e wire.Epoch) {
	n, _ := strconv.Atoi(s[1:])
	e[7] = byte(n)
	return e
}

func testFlow(t testing.TB, s string) wire.Flow {
	e, lane, _ := strings.Cut(s, "/")
	l, err := wire.ParseLane(lane)
	if err != nil {
		t.Fatal(err)
	}
	return wire.Flow{Epoch: testEpoch(e), Lane: l}
}

func printFlow(f wire.Flow) string { return fmt.Sprintf("e%d/%s", f.Epoch[7], f.Lane) }

func printReceived(list []wire.FlowReceived) string {
	var b strings.Builder
	for _, f := range list {
		fmt.Fprintf(&b, " %s[%s]", printFlow(f.Flow), f.Ranges)
	}
	return b.String()
}

func printRecvAction(a RecvAction) string {
	switch a := a.(type) {
	case DoReply:
		if a.Err != nil {
			return fmt.Sprintf("reply %d %s: %s", a.Request, a.Device, a.Err)
		}
		text := fmt.Sprintf("reply %d %s s%d%s", a.Request, a.Device, a.Session[7], printReceived(a.Received))
		for _, k := range a.Partial {
			text += fmt.Sprintf(" partial=%d:%d/%d", k.Slot, k.Bytes, k.Size)
		}
		return text
	case DoIgnore:
		return fmt.Sprintf("ignore %d", a.Request)
	case DoAck:
		return fmt.Sprintf("ack %s s%d counter=%d%s", a.Device, a.Session[7], a.Ack.Counter, printReceived(a.Ack.Flows))
	case DoEnd:
		if a.Err == nil {
			return fmt.Sprintf("ended %s s%d", a.Device, a.Session[7])
		}
		return fmt.Sprintf("end %s s%d %s", a.Device, a.Session[7], a.Err)
	case DoRead:
		return fmt.Sprintf("read %s %s", a.Device, printFlow(a.Flow))
	case DoCommit:
		var b strings.Builder
		b.WriteString("commit")
		for _, m := range a.Blocks {
			fmt.Fprintf(&b, "\n  %s %s %s", m.Device, printFlow(m.Flow), m.Range)
			if m.Void != 0 {
				fmt.Fprintf(&b, " void=%s", m.Void)
			}
			if m.Backfill {
				b.WriteString(" backfill")
			}
			if m.Guarded {
				fmt.Fprintf(&b, " guard=%d", m.Guard)
			}
			fmt.Fprintf(&b, " received=%s", m.Received)
			if m.Pieces != 1 {
				fmt.Fprintf(&b, " pieces=%d", m.Pieces)
			}
		}
		return b.String()
	case DoConfirm:
		return fmt.Sprintf("confirm %s %s", a.Device, a.Token)
	case DoClose:
		return fmt.Sprintf("close %s e%d", a.Device, a.Epoch[7])
	case DoCount:
		return fmt.Sprintf("count %s %s", a.Device, a.What)
	}
	return fmt.Sprintf("?%T", a)
}
