package uplink

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

var updateSender = flag.Bool("update-sender", false, "rewrite the golden scripts of the sender")

// TestSenderScripts runs testdata/sender/*.txt. A script is cases separated by
// empty lines: commands, a line ----, the actions, and where the sender stands.
func TestSenderScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/sender/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runSenderScript(t, string(text))
			if *updateSender {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("%s: the actions differ (go test -update-sender rewrites it)\n--- want\n%s\n--- got\n%s", file, text, got)
			}
		})
	}
}

// senderScript is one sender, its spool and what a driver would do.
type senderScript struct {
	t        *testing.T
	now      time.Time
	spool    *fakeSpool
	s        *Sender
	class    string
	sessions byte
	dec      *wire.StreamDecoder // of the session
	cfg      SenderConfig        // of the next start
	policy   *scriptPolicy
	flying   []scriptFrame             // of the session, not acked by serve
	chunks   [wire.MaxSlots]fakeChunks // blocks of which a part was sent
	quiet    bool
	out      []string
}

// scriptFrame is a frame with messages that was sent.
type scriptFrame struct {
	counter uint64
	flow    wire.Flow
	r       wire.Range
}

func runSenderScript(t *testing.T, text string) string {
	p := &senderScript{t: t, now: time.Unix(1_800_000_000, 0), spool: newFakeSpool(), policy: &scriptPolicy{}}
	p.start()
	var out []string
	for _, c := range strings.Split(strings.TrimSpace(text), "\n\n") {
		commands, _, _ := strings.Cut(c, "\n----")
		p.out = nil
		for _, line := range strings.Split(commands, "\n") {
			if line != "" && line[0] != '#' {
				p.command(strings.Fields(line))
			}
		}
		out = append(out, commands+"\n----\n"+strings.Join(append(p.out, p.stands()), "\n"))
	}
	return strings.Join(out, "\n\n") + "\n"
}

func (p *senderScript) start() {
	c := p.cfg
	c.Version, c.Process, c.HubID, c.Token = "v1", fmt.Sprintf("p%d", p.spool.runs), p.spool.hub, p.spool.tok
	c.Class, c.Rand, c.Policy = func() string { return p.class }, func() float64 { return 0.5 }, p.policy
	p.s = NewSender(c)
}

func (p *senderScript) command(f []string) {
	args := map[string]string{}
	for _, a := range f[1:] {
		k, v, _ := strings.Cut(a, "=")
		args[k] = v
	}
	switch f[0] {
	case "append": // append LANE COUNT [size=BYTES] [times=BLOCKS]
		for range max(number(args["times"]), 1) {
			p.spool.append(laneOf(p.t, f[1]), number(f[2]), number(args["size"]))
		}
		p.spooled()
	case "void": // void LANE COUNT REASON
		p.spool.void(laneOf(p.t, f[1]), number(f[2]), wire.ReasonTTL)
		p.spooled()
	case "drop": // drop FLOW RANGE
		set, err := wire.ParseRanges(f[2])
		if err != nil {
			p.t.Fatal(err)
		}
		p.spool.drop(p.flow(f[1]), set[0])
		p.spooled()
	case "bad": // bad FLOW/FROM
		p.spool.bad[p.flow(f[1]).String()+"/"+f[2]] = errors.New("disk fault")
	case "good":
		clear(p.spool.bad)
	case "keep": // the spool notes acks but removes nothing
		p.spool.trims = false
	case "restart":
		p.spool.restart()
		p.start()
		p.spooled()
	case "spooled":
		p.spooled()
	case "await":
		p.step(Awaited{})
	case "expect":
		p.step(Awaited{Next: true})
	case "config": // config [order=fresh-first] [share=PERCENT] [flush=TIME]: of this and later runs
		p.cfg = SenderConfig{FreshFirst: args["order"] == "fresh-first", FreshShare: number(args["share"]), Flush: p.duration(args["flush"])}
		p.start()
	case "deny": // deny LANE [again=TIME]: the policy says no; for so long, or until told
		p.policy.deny(laneOf(p.t, f[1]), p.now, p.duration(args["again"]))
	case "allow": // allow LANE
		p.policy.lanes[laneOf(p.t, f[1])] = denial{}
	case "budget": // budget BYTES again=TIME: of normal and bulk
		p.policy.budget, p.policy.renew = number(f[1]), p.duration(args["again"])
	case "serve": // serve COUNT every=TIME: the hub acks as many frames, one after another
		p.serve(number(f[1]), p.duration(args["every"]))
	case "class":
		p.class = f[1]
	case "up":
		p.step(Linked{number(args["max"])})
	case "lost":
		p.step(Unlinked{errors.New(strings.Join(f[1:], " "))})
	case "open": // open [max=BYTES] [window=BYTES] [stream=NAME] [kept[=BYTES]] [spoiled] FLOW=RANGES…
		p.step(OpenReplied{p.reply(f[1:], args)})
	case "refuse":
		p.step(OpenReplied{&wire.OpenReply{HubID: "hub2", Error: &wire.SessionError{Code: f[1], Detail: "said so"}}})
	case "nohub":
		p.step(OpenFailed{errors.New("no hub listens")})
	case "ack": // ack COUNTER FLOW=RANGES…
		a := &wire.Ack{Counter: uint64(number(f[1]))}
		for _, kv := range f[2:] {
			a.Flows = append(a.Flows, p.received(kv))
		}
		p.step(Acked{p.session(args), a})
	case "end": // end CODE [session=N]
		p.step(Ended{p.session(args), "", &wire.SessionError{Code: f[1], Detail: "said so"}})
	case "progress":
		p.step(Progressed{p.now})
	case "kick":
		p.step(Kicked{})
	case "tune": // tune [flush=TIME] [rate=BYTES] [frame=BYTES]
		p.step(Tuned{Tuning{p.duration(args["flush"]), int64(number(args["rate"])), number(args["frame"])}})
	case "reset":
		p.step(HubReset{})
	case "stop":
		p.step(Stopped{})
	case "tick":
		p.tick(p.now.Add(p.duration(f[1])))
	default:
		p.t.Fatalf("unknown command %q", f)
	}
}

func (p *senderScript) duration(text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

// serve is a hub behind a slow link: after each pause it acks the oldest frame.
// Only what is sent in return is shown.
func (p *senderScript) serve(n int, every time.Duration) {
	p.quiet = true
	defer func() { p.quiet = false }()
	for range n {
		p.tick(p.now.Add(every))
		if len(p.flying) == 0 {
			continue
		}
		f := p.flying[0]
		p.flying = p.flying[1:]
		p.step(Acked{p.session(nil), &wire.Ack{Counter: f.counter, Flows: []wire.FlowReceived{{Flow: f.flow, Ranges: wire.Ranges{f.r}}}}})
	}
}

// tick lets time pass as a driver would: from deadline to deadline.
func (p *senderScript) tick(until time.Time) {
	for {
		d := p.s.Deadline()
		if d.IsZero() || d.After(until) {
			break
		}
		p.now = d
		p.step(Ticked{})
		if next := p.s.Deadline(); !next.IsZero() && !next.After(d) {
			p.t.Fatalf("the deadline %s does not move", d)
		}
	}
	p.now = until
}

func (p *senderScript) spooled() { p.step(p.spool.list()) }

func (p *senderScript) step(ev Event) {
	todo := []Event{ev}
	for len(todo) > 0 {
		ev, todo = todo[0], todo[1:]
		for _, a := range p.s.Step(p.now, ev) {
			if next := p.do(a); next != nil {
				todo = append(todo, next)
			}
		}
	}
}

func (p *senderScript) do(a Action) Event {
	say := func(format string, args ...any) { p.out = append(p.out, fmt.Sprintf(format, args...)) }
	switch a := a.(type) {
	case Dial:
		say("dial")
	case Hangup:
		say("hangup")
	case List:
		return p.spool.list()
	case SendOpen:
		text := "open"
		if a.Open.HubID != "" {
			text += " hub=" + a.Open.HubID
		}
		if a.Open.Token != "" {
			text += " token=" + a.Open.Token
		}
		for _, f := range a.Open.Flows {
			text += fmt.Sprintf(" %s=%d/%d-%d", short(f.Flow), f.Base, f.First, f.Last)
		}
		say("%s", text)
	case SendFrame:
		say("#%d %s", a.Frame.Counter, p.describe(a.Frame))
		return Written{len(a.Frame.Body)}
	case Load:
		data, err := p.spool.Read(a.Flow, a.From)
		return Loaded{a.Flow, a.From, data, err}
	case MarkReceived:
		if !p.quiet {
			say("received %s %s", short(a.Flow), a.Set)
		}
		if err := p.spool.Received(a.Flow, a.Set); err != nil {
			p.t.Fatal(err)
		}
	case PinHub:
		say("pin %s", a.ID)
		p.spool.hub = a.ID
	case SaveToken:
		say("save token %s", a.Token)
		p.spool.tok = a.Token
		return TokenSaved(a)
	case Notice:
		say("notice %s", a.Text)
	case Redelivered:
		say("redelivered:")
	case Rewound:
		say("rewound %d", a.Messages)
	}
	return nil
}

func (p *senderScript) stands() string {
	names := map[phase]string{phaseDown: "down", phaseDialing: "dialing", phaseOpening: "opening", phaseOpen: "open", phaseStopped: "stopped"}
	text := "= " + names[p.s.phase]
	if d := p.s.Deadline(); !d.IsZero() {
		text += ", next in " + d.Sub(p.now).String()
	}
	if err := p.s.Problem(); err != nil {
		text += ": " + err.Error()
	}
	return text
}

// session is the present one, or session=N.
func (p *senderScript) session(args map[string]string) string {
	if n := args["session"]; n != "" {
		return wire.SessionID{byte(number(n))}.Tag()
	}
	return wire.SessionID{p.sessions}.Tag()
}

func (p *senderScript) reply(fields []string, args map[string]string) *wire.OpenReply {
	p.sessions++
	p.dec, p.flying = wire.NewStreamDecoder(), nil
	r := &wire.OpenReply{
		Protocol: wire.Protocol, Session: &wire.Epoch{p.sessions}, Stream: args["stream"], Instance: "i1", HubID: "hub1",
		MaxPayload: 1 << 20, Window: 8 << 20, Token: args["token"], Notice: args["notice"],
	}
	if v := args["hub"]; v != "" {
		r.HubID = v
	}
	if v := args["max"]; v != "" {
		r.MaxPayload = number(v)
	}
	if v := args["window"]; v != "" {
		r.Window = number(v)
	}
	r.Partial = p.kept(args)
	for _, kv := range fields {
		if strings.HasPrefix(kv, "e") {
			r.Received = append(r.Received, p.received(kv))
		}
	}
	return r
}

// kept is what the hub still has of blocks that came in part: nothing, or with
// kept as much as was sent, or with kept=BYTES so much; with spoiled something else.
func (p *senderScript) kept(args map[string]string) []wire.Partial {
	n, kept := args["kept"]
	for i := range p.chunks {
		f := &p.chunks[i]
		if !kept {
			*f = fakeChunks{}
		} else if n != "" {
			f.data = f.data[:min(number(n), len(f.data))]
		}
	}
	out := partials(p.chunks[:])
	if _, ok := args["spoiled"]; ok {
		out[0].CRC++
	}
	return out
}

func (p *senderScript) received(kv string) wire.FlowReceived {
	k, v, _ := strings.Cut(kv, "=")
	set, err := wire.ParseRanges(v)
	if err != nil {
		p.t.Fatal(err)
	}
	return wire.FlowReceived{Flow: p.flow(k), Ranges: set}
}

// flow reads e1/normal.
func (p *senderScript) flow(text string) wire.Flow {
	e, l, _ := strings.Cut(strings.TrimPrefix(text, "e"), "/")
	return wire.Flow{Epoch: wire.Epoch{byte(number(e))}, Lane: laneOf(p.t, l)}
}

func short(f wire.Flow) string { return fmt.Sprintf("e%d/%s", f.Epoch[0], f.Lane) }

func (p *senderScript) describe(f wire.Frame) string {
	switch f.Type {
	case wire.FramePing:
		return "ping"
	case wire.FrameBye:
		return "bye"
	case wire.FrameConfirm:
		return "confirm " + string(f.Body)
	case wire.FrameDrained:
		return fmt.Sprintf("drained e%d", f.Body[0])
	}
	if f.Type == wire.FrameChunk {
		c, err := wire.ParseChunk(f.Body)
		if err != nil {
			p.t.Fatal(err)
		}
		begins := ""
		if c.First {
			begins = "begins, "
		}
		if _, ok := p.chunks[c.Slot].add(c); !ok {
			p.t.Fatalf("chunk in slot %d: %d bytes and %d to come do not go on with %d of %d", c.Slot, len(c.Data), c.Left, len(p.chunks[c.Slot].data), p.chunks[c.Slot].size)
		}
		return fmt.Sprintf("chunk %d: %s%d bytes, %d left", c.Slot, begins, len(c.Data), c.Left)
	}
	var h wire.Header
	var err error
	text := "block"
	if f.Type == wire.FrameStream {
		var b *wire.Block
		if b, err = p.dec.Decode(f.Body); err == nil {
			h = b.Header
		}
		text = "stream"
	} else {
		h, err = wire.ParseHeader(f.Body)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.flying = append(p.flying, scriptFrame{f.Counter, h.Flow, h.Range()})
	if h.Kind == wire.KindVoid {
		return fmt.Sprintf("void %s %s %s", short(h.Flow), h.Range(), h.Reason)
	}
	if f.Backfill {
		text = "backfill " + text
	}
	if f.Lazy {
		text = "lazy " + text
	}
	return fmt.Sprintf("%s %s %s", text, short(h.Flow), h.Range())
}

func laneOf(t *testing.T, s string) wire.Lane {
	l, err := wire.ParseLane(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
