package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// rig is a store with a clock that the test moves.
type rig struct {
	t       *testing.T
	cfg     Config
	s       *Store
	clock   int64
	counted map[string]int
	seq     uint64
	stream  string
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, clock: 1_000_000, counted: map[string]int{}, stream: "s1"}
	r.cfg = Config{
		Dir: filepath.Join(t.TempDir(), "commands"), Clock: func() int64 { return r.clock },
		Counted: func(to string) { r.counted[to]++ }, Rand: func() float64 { return 1 },
	}
	r.s = Open(r.cfg)
	t.Cleanup(func() { r.s.Close() })
	return r
}

func (r *rig) reopen() {
	r.t.Helper()
	if err := r.s.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.s = Open(r.cfg)
}

// cmd is the next command of the stream.
func (r *rig) cmd(id, subject string, change func(c *wire.Command)) wire.Command {
	r.seq++
	c := wire.Command{ID: id, Seq: r.seq, Subject: subject, Payload: []byte("do " + id), Sent: 1, TTL: 3_600_000, AckWait: 30_000, MaxDeliver: 3}
	if change != nil {
		change(&c)
	}
	return c
}

// take is one exchange with a hub that notes what noted says.
func (r *rig) take(reply wire.CommandReply, cs ...wire.Command) wire.CommandRequest {
	r.t.Helper()
	asked := r.s.Ask(0)
	reply.Stream, reply.Commands, reply.Next = r.stream, cs, max(r.seq, reply.Next)
	if all, err := r.s.Take(asked, &reply); err != nil || !all {
		r.t.Fatalf("Take: all %v, %v", all, err)
	}
	return asked
}

// noteAll is an exchange in which the hub notes all reports; it returns them.
func (r *rig) noteAll() map[string]wire.CommandReport {
	r.t.Helper()
	asked := r.s.Ask(0)
	reply := wire.CommandReply{Stream: r.stream, Next: r.seq}
	out := map[string]wire.CommandReport{}
	for _, p := range asked.Reports {
		reply.Noted = append(reply.Noted, p.ID)
		out[p.ID] = p
	}
	if _, err := r.s.Take(asked, &reply); err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *rig) subscribe(filter string, atOnce int) *Subscriber {
	r.t.Helper()
	u, err := r.s.Subscribe(filter, atOnce)
	if err != nil {
		r.t.Fatal(err)
	}
	return u
}

// lent takes what u gets now: ids, as a text.
func (r *rig) lent(u *Subscriber) string {
	r.s.sweep()
	var ids []string
	for {
		d, ok := r.s.lend(u)
		if !ok {
			return strings.Join(ids, " ")
		}
		if want := "do " + d.ID; string(d.Payload) != want {
			r.t.Errorf("payload %q", d.Payload)
		}
		ids = append(ids, fmt.Sprintf("%s/%d", d.ID, d.Deliveries))
	}
}

func (r *rig) want(what, got, want string) {
	r.t.Helper()
	if got != want {
		r.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func (r *rig) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Error(err)
	}
}

func TestOneCommandsWay(t *testing.T) {
	r := newRig(t)
	r.take(wire.CommandReply{}, r.cmd("a", "valve.set", nil))
	if p := r.noteAll()["a"]; p.State != wire.CommandDelivered {
		t.Errorf("report %+v", p)
	}
	if n := len(r.s.Ask(0).Reports); n != 0 {
		t.Errorf("%d reports after they were noted", n)
	}
	u := r.subscribe("valve.*", 1)
	r.want("handed out", r.lent(u), "a/1")
	r.want("again", r.lent(u), "")
	r.ok(r.s.Ack("a", []byte("done")))
	r.ok(r.s.Ack("a", []byte("done")))
	var other *SettledError
	if err := r.s.Term("a", ""); !errors.As(err, &other) || other.State != wire.CommandAcked {
		t.Errorf("term after ack: %v", err)
	}
	if err := r.s.Nak("a", ""); !errors.As(err, &other) {
		t.Errorf("nak after ack: %v", err)
	}
	if err := r.s.Ack("b", nil); !errors.Is(err, ErrUnknown) {
		t.Errorf("ack of an unknown one: %v", err)
	}
	r.reopen()
	if p := r.noteAll()["a"]; p.State != wire.CommandAcked || string(p.Result) != "done" || p.Deliveries != 1 {
		t.Errorf("report %+v", p)
	}
	r.reopen()
	r.ok(r.s.Ack("a", nil)) // remembered
	if st := r.s.Status(); st.Pending != 0 || st.Reports != 0 || st.Bytes != 0 {
		t.Errorf("%+v", st)
	}
	if r.counted["delivered"] != 1 || r.counted["leased"] != 1 || r.counted["acked"] != 1 {
		t.Errorf("counted %v", r.counted)
	}
}

func TestOrderAndSubjects(t *testing.T) {
	r := newRig(t)
	r.take(wire.CommandReply{}, r.cmd("a1", "a", nil), r.cmd("b1", "b", nil), r.cmd("a2", "a", nil), r.cmd("c1", "c", nil))
	u, v := r.subscribe(">", 2), r.subscribe("a", 9)
	r.want("first", r.lent(u), "a1/1 b1/1")
	r.want("held back by a1", r.lent(v), "")
	r.ok(r.s.Nak("a1", "busy"))
	r.want("a1 waits and still holds back a2", r.lent(v), "")
	r.want("another subject goes on", r.lent(u), "c1/1")
	r.clock += 1_000
	r.want("after the backoff", r.lent(v), "a1/2")
	r.ok(r.s.Ack("a1", nil))
	r.want("then the next of the subject", r.lent(v), "a2/1")
}

func TestLeaseEndsAndBackoffGrows(t *testing.T) {
	r := newRig(t)
	r.take(wire.CommandReply{}, r.cmd("a", "a", func(c *wire.Command) { c.MaxDeliver = 9 }))
	u := r.subscribe(">", 1)
	wait := int64(1_000)
	for n := 1; n <= 9; n++ {
		r.want("handed out", r.lent(u), fmt.Sprintf("a/%d", n))
		r.clock += 29_999
		r.want("leased", r.lent(u), "")
		r.clock++
		r.want("in backoff", r.lent(u), "")
		r.clock += wait - 1
		r.want("in backoff", r.lent(u), "")
		r.clock++
		wait = min(2*wait, 60_000)
	}
	r.s.sweep()
	if p := r.noteAll()["a"]; p.State != wire.CommandFailed || !strings.Contains(p.Reason, "max_deliver") || p.Deliveries != 9 {
		t.Errorf("report %+v", p)
	}
	r.ok(r.s.Nak("a", "late")) // it was given back, nothing else
	if err := r.s.Ack("a", nil); err == nil {
		t.Error("acked after it has failed")
	}
}

// A subscriber that goes away gives back what it has, but for the last delivery:
// its program may still answer.
func TestSubscriberGoesAway(t *testing.T) {
	r := newRig(t)
	r.take(wire.CommandReply{}, r.cmd("a", "a", func(c *wire.Command) { c.MaxDeliver = 2 }))
	u, v := r.subscribe(">", 1), r.subscribe(">", 1)
	r.want("handed out", r.lent(u), "a/1")
	r.want("to one only", r.lent(v), "")
	u.Close()
	r.clock += 1_000
	r.want("to the other", r.lent(v), "a/2")
	v.Close()
	r.clock += 5_000
	r.s.sweep()
	r.reopen()
	r.s.sweep()
	r.ok(r.s.Ack("a", []byte("late, but in time")))
	if p := r.noteAll()["a"]; p.State != wire.CommandAcked {
		t.Errorf("report %+v", p)
	}
	if r.counted[returned] != 1 {
		t.Errorf("counted %v", r.counted)
	}
}

func TestTimeToLive(t *testing.T) {
	r := newRig(t)
	r.take(wire.CommandReply{}, r.cmd("waits", "b", func(c *wire.Command) { c.TTL = 10_000 }))
	r.clock += 9_999
	r.take(wire.CommandReply{Next: 7}) // something is written
	r.s.sweep()
	if n := r.s.Status().Pending; n != 1 {
		t.Errorf("%d pending", n)
	}
	// The agent does not run for the last millisecond, and the clock is behind after
	// it: its folder is older than ours. Time goes on from where it was.
	r.clock -= 500_000
	r.reopen()
	r.s.sweep()
	if n := r.s.Status().Pending; n != 1 {
		t.Errorf("%d pending after a clock that went back", n)
	}
	r.clock++
	r.s.sweep()
	if p := r.noteAll()["waits"]; p.State != wire.CommandExpired {
		t.Errorf("report %+v", p)
	}
}

func TestExpiredWhileLeased(t *testing.T) {
	r := newRig(t)
	short := func(c *wire.Command) { c.TTL = 10_000 }
	r.take(wire.CommandReply{}, r.cmd("a", "a", short), r.cmd("b", "b", short))
	u := r.subscribe(">", 2)
	r.want("handed out", r.lent(u), "a/1 b/1")
	r.clock += 20_000
	r.s.sweep()
	r.ok(r.s.Ack("a", nil))
	r.clock += 10_000
	r.s.sweep()
	got := r.noteAll()
	if got["a"].State != wire.CommandAcked || got["b"].State != wire.CommandExpired {
		t.Errorf("reports %+v", got)
	}
}

func TestCancel(t *testing.T) {
	r := newRig(t)
	r.take(wire.CommandReply{}, r.cmd("waits", "a", nil), r.cmd("acked", "b", nil), r.cmd("naked", "c", nil))
	u := r.subscribe(">", 3)
	r.want("handed out", r.lent(u), "waits/1 acked/1 naked/1")
	r.ok(r.s.Nak("waits", ""))
	r.noteAll()
	fresh := r.cmd("fresh", "d", nil)
	r.take(wire.CommandReply{Cancel: []string{"waits", "acked", "naked", "fresh", "never"}}, fresh)
	r.reopen() // what was said is remembered
	r.ok(r.s.Ack("acked", nil))
	r.clock += 30_000
	r.s.sweep()
	r.want("nothing is handed out any more", r.lent(r.subscribe(">", 9)), "")
	got := r.noteAll()
	for id, want := range map[string]wire.CommandState{
		"waits": wire.CommandCancelled, "acked": wire.CommandAcked, "naked": wire.CommandCancelled, "fresh": wire.CommandCancelled, "never": wire.CommandCancelled,
	} {
		if got[id].State != want {
			t.Errorf("%s: %+v, want %s", id, got[id], want)
		}
	}
	r.take(wire.CommandReply{}, r.cmd("never", "a", nil))
	r.want("a cancelled one that comes later", r.lent(r.subscribe(">", 9)), "")
}

// A stream that was made anew sends everything again, under the same ids.
func TestStreamMadeAnew(t *testing.T) {
	r := newRig(t)
	r.take(wire.CommandReply{}, r.cmd("a", "a", nil), r.cmd("b", "b", nil))
	u := r.subscribe(">", 9)
	r.want("handed out", r.lent(u), "a/1 b/1")
	r.ok(r.s.Ack("a", nil))
	r.noteAll()
	r.seq, r.stream = 0, "s2"
	asked := r.take(wire.CommandReply{}, r.cmd("b", "b", nil), r.cmd("a", "a", nil), r.cmd("c", "c", nil))
	if asked.Stream != "s1" || asked.After != 2 {
		t.Errorf("asked %+v", asked)
	}
	r.want("the new one only", r.lent(u), "c/1")
	got := r.noteAll()
	if got["a"].State != wire.CommandAcked || got["b"].State != wire.CommandDelivered || got["c"].State != wire.CommandDelivered {
		t.Errorf("reports %+v", got)
	}
	if after := r.s.Ask(0); after.Stream != "s2" || after.After != 3 {
		t.Errorf("then %+v", after)
	}
}

func TestNotedIsOfTheStateThatWasTold(t *testing.T) {
	r := newRig(t)
	r.take(wire.CommandReply{}, r.cmd("a", "a", nil))
	asked := r.s.Ask(0)
	r.ok(r.s.Ack("a", nil)) // while the request is under way
	if _, err := r.s.Take(asked, &wire.CommandReply{Stream: "s1", Next: 1, Noted: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	if p := r.noteAll()["a"]; p.State != wire.CommandAcked {
		t.Errorf("report %+v", p)
	}
}

func TestRoom(t *testing.T) {
	r := newRig(t)
	big := func(c *wire.Command) { c.Payload = make([]byte, wire.MaxCommand) }
	n := 0
	for {
		asked := r.s.Ask(0)
		c := r.cmd(fmt.Sprint("c", n), fmt.Sprint("s", n), big)
		all, err := r.s.Take(asked, &wire.CommandReply{Stream: "s1", Commands: []wire.Command{c}, Next: c.Seq})
		if err != nil {
			t.Fatal(err)
		}
		if !all {
			break
		}
		n++
	}
	if n != maxHeld/(wire.MaxCommand+overhead) {
		t.Errorf("%d commands taken", n)
	}
	for len(r.s.updates) > 0 {
		<-r.s.updates
	}
	if asked := r.s.Ask(0); asked.After != uint64(n) || asked.Room >= wire.MaxCommand {
		t.Errorf("asked after %d, room %d", asked.After, asked.Room)
	}
	r.ok(r.s.Term("c0", "no"))
	select {
	case <-r.s.Updates():
	default:
		t.Error("room again, and nobody is told")
	}
	if asked := r.s.Ask(0); asked.Room != wire.MaxCommand {
		t.Errorf("room %d", asked.Room)
	}
}

func TestNextWaitsAndEnds(t *testing.T) {
	r := newRig(t)
	u := r.subscribe(">", 1)
	ctx, cancel := context.WithCancel(context.Background())
	got := make(chan string, 2)
	go func() {
		for {
			d, err := u.Next(ctx)
			if err != nil {
				got <- err.Error()
				return
			}
			got <- d.ID
		}
	}()
	r.take(wire.CommandReply{}, r.cmd("a", "a", nil))
	r.want("next", <-got, "a")
	cancel()
	r.want("end", <-got, context.Canceled.Error())
}

func TestResultsAreBounded(t *testing.T) {
	r := newRig(t)
	result := make([]byte, wire.MaxCommandResult)
	for i := range maxResults/len(result) + 1 {
		id := fmt.Sprint("c", i)
		r.take(wire.CommandReply{}, r.cmd(id, id, nil))
		r.ok(r.s.Ack(id, result))
	}
	asked := r.s.Ask(0)
	if n := len(asked.Reports); n < 5 || n > wire.MaxCommandReports {
		t.Errorf("%d reports in a request", n)
	}
	last := ""
	for reports := 0; ; {
		got := r.noteAll()
		if len(got) == 0 {
			if reports != maxResults/len(result)+1 {
				t.Errorf("%d reports", reports)
			}
			break
		}
		reports += len(got)
		for id, p := range got {
			if p.Result == nil {
				last = id + ": " + p.Reason
			}
		}
	}
	if !strings.HasPrefix(last, "c128: ") || !strings.Contains(last, "not kept") {
		t.Errorf("%q", last)
	}
	if small := r.s.Ask(8 << 10); len(small.Reports) != 0 {
		t.Errorf("%+v", small)
	}
	r.take(wire.CommandReply{}, r.cmd("x", "x", nil))
	r.ok(r.s.Ack("x", result))
	if small := r.s.Ask(8 << 10); len(small.Reports) != 1 || small.Reports[0].Result != nil || !strings.Contains(small.Reports[0].Reason, "does not fit") {
		t.Errorf("%+v", small.Reports)
	}
}

// The log is written anew when most of it is not needed.
func TestLogStaysSmall(t *testing.T) {
	r := newRig(t)
	r.take(wire.CommandReply{}, r.cmd("stays", "stays", nil))
	for i := range 30 {
		id := fmt.Sprint("c", i)
		r.take(wire.CommandReply{}, r.cmd(id, "s", func(c *wire.Command) { c.Payload = make([]byte, 200<<10) }))
		r.ok(r.s.Ack(id, nil))
		r.noteAll()
	}
	fi, err := os.Stat(filepath.Join(r.cfg.Dir, logName))
	if err != nil || fi.Size() > 2<<20 {
		t.Errorf("%v bytes, %v", fi.Size(), err)
	}
	r.want("still there", r.lent(r.subscribe(">", 9)), "stays/1")
	r.reopen()
	r.ok(r.s.Ack("c0", nil))
	r.clock += int64(25 * time.Hour / time.Millisecond)
	r.s.mu.Lock()
	r.ok(r.s.rewrite())
	r.s.mu.Unlock()
	if err := r.s.Ack("c0", nil); !errors.Is(err, ErrUnknown) {
		t.Errorf("after a day: %v", err)
	}
}
