package registry

import (
	"log/slog"
	"sync"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// NoticeClone is the notice to an agent whose state is not the one it left with.
const NoticeClone = "clone_or_restored_copy"

// Config configures a registry.
type Config struct {
	Bucket   Bucket
	Instance string
	// Interest reports whether anybody subscribes to a subject, so that a lost
	// connection shows at once. Nil where that is not known.
	Interest func(subject string) bool
	// Rejected counts heartbeats and devices that were refused, by reason.
	Rejected   func(reason string)
	MaxDevices int           // 0: 1,000,000
	MaxLabels  int64         // bytes of all labels together; 0: 256 MiB
	Patience   time.Duration // Open waits so long for the list, the rest is read behind; 0: 3 s
	Log        *slog.Logger
	Now        func() time.Time
}

// Registry knows the devices. It is safe for concurrent use.
type Registry struct {
	cfg  Config
	kick chan struct{} // capacity 1: something wants to be written soon

	mu      sync.Mutex // guards what follows
	shelf   shelf
	entries map[string]*entry   // of the shelf's devices that are not packed
	urgent  map[*entry]struct{} // those whose turn is not written
	backlog uint64              // messages that all devices hold
	labels  int64               // bytes of all labels
	loading bool                // the bucket has not been read to its end
	fresh   news
	full    time.Time // last log of too many devices
	swept   int       // chunk at which the next sweep begins

	started time.Time
	watch   *watch // of Open, for Run
}

// news is what is said of devices that come for the first time: a bucket that was
// lost brings all of them at once.
type news struct {
	since  time.Time
	said   int
	silent int
}

// record is what the bucket holds of a device.
type record struct {
	admin.Device
	Token   string    `json:"token,omitempty"`   // link of the confirmed token
	Opened  time.Time `json:"opened,omitzero"`   // when Instance got its newest session
	History links     `json:"history,omitempty"` // Device.Links, which is empty here
}

// entry is one device that lives here. All fields are guarded by Registry.mu.
type entry struct {
	rec      record
	counted  counted
	sessions map[wire.SessionID]struct{} // live at this instance
	inbox    string                      // session subject of the newest session here
	opened   time.Time                   // when the newest session here began
	ended    time.Time                   // when the last session here ended
	left     string                      // process that said bye or lost its connection: its late heartbeats change nothing
	tokens   float64                     // heartbeats that may come now
	refill   time.Time
	warned   time.Time // last log of a clone
	believed []string  // what its token descended from when it came before its record was read

	// What the bucket does not know yet.
	rev       uint64 // of the bucket's value, 0 if none
	dirty     urgency
	gen       uint64 // counts changes
	written   time.Time
	newToken  bool
	newClones uint64
}

// urgency says how soon a change is written.
type urgency uint8

const (
	clean    urgency = iota
	counters         // within slowly
	turn             // within soon: state, session or token changed
)

const (
	soon       = time.Second
	slowly     = 5 * time.Minute // every heartbeat says it anew
	grace      = 5 * time.Second // between sessions of one agent
	beatsBurst = 5
	beatsRate  = 1.0 // a second
)

func newRegistry(cfg Config) *Registry {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Rejected == nil {
		cfg.Rejected = func(string) {}
	}
	if cfg.MaxDevices == 0 {
		cfg.MaxDevices = 1_000_000
	}
	if cfg.MaxLabels == 0 {
		cfg.MaxLabels = 256 << 20
	}
	if cfg.Patience == 0 {
		cfg.Patience = 3 * time.Second
	}
	return &Registry{cfg: cfg, kick: make(chan struct{}, 1), entries: map[string]*entry{}, urgent: map[*entry]struct{}{}, started: cfg.Now()}
}

// Opened notes a new session and returns the token for its reply and a notice,
// either possibly empty.
func (r *Registry) Opened(device string, o *wire.Open, s wire.SessionID) (token, notice string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	e := r.entry(device, now)
	if e == nil {
		return "", ""
	}
	if e.believed == nil && r.loading && e.rev == 0 {
		e.believed = append(lineage(o.Token), "") // not nil: a token that is none is no kin either
	}
	switch confirmed, own := e.rec.Token, link(o.Token); {
	case confirmed == own:
	case confirmed == "" && own != "":
		// The hub knows nothing, as after a loss of its bucket: believe the device,
		// until another instance knows better.
		e.rec.Token = own
	case confirmed == "":
	case descends(o.Token, confirmed):
		// It was made durable, only the confirmation did not arrive.
		e.rec.Token, e.newToken = own, true
	default:
		notice = NoticeClone
		r.reportClone(e, now)
	}
	e.sessions[s] = struct{}{}
	e.inbox, e.opened, e.left = wire.SessionSubject(device, s), now, ""
	d := &e.rec.Device
	d.Instance, e.rec.Opened = r.cfg.Instance, now
	if printable(o.Version, maxText) && printable(o.Process, maxText) && printable(o.Class, maxText) {
		d.Version, d.Process, d.Class = o.Version, o.Process, o.Class
	}
	if o.Labels != nil && checkLabels(o.Labels) == nil && r.labelsFit() {
		d.Labels = o.Labels
	}
	r.heard(e, now, admin.LinkSession)
	r.touch(e, turn)
	return newToken(o.Token), notice
}

// reportClone counts and logs; r.mu is held.
func (r *Registry) reportClone(e *entry, now time.Time) {
	d := &e.rec.Device
	var n uint64
	if d.Clones != nil {
		n = d.Clones.Reports
	}
	d.Clones = &admin.Clones{Reports: n + 1, Last: now}
	e.newClones++
	if now.Sub(e.warned) >= time.Minute {
		e.warned = now
		r.cfg.Log.Warn("device came with a state that is not the one it left with: a copied disk, a restored backup or a wiped spool",
			"device", d.Device, "reports", n+1)
	}
}

// Confirmed notes that the agent has made token durable.
func (r *Registry) Confirmed(device, token string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, own := r.lookup(device), link(token)
	if e == nil || own == "" || own == e.rec.Token {
		return
	}
	// One of two copies may confirm after the other: the last one stands, and
	// whoever does not descend from it is reported at its next open.
	e.rec.Token, e.newToken = own, true
	r.touch(e, turn)
}

// Ended notes the end of a session; bye means that the agent ended it.
func (r *Registry) Ended(device string, s wire.SessionID, bye bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[device] // with a session it is not packed
	if e == nil {
		return
	}
	now := r.now()
	if _, live := e.sessions[s]; !live {
		return
	}
	delete(e.sessions, s)
	e.ended = now
	if bye && len(e.sessions) == 0 {
		r.leave(e, now, admin.LinkEnded)
	}
}

// Heartbeat takes in what a device says of itself.
func (r *Registry) Heartbeat(device string, data []byte) {
	if wire.CheckDevice(device) != nil {
		r.cfg.Rejected("heartbeat_invalid")
		return
	}
	r.mu.Lock()
	allowed := r.allow(device)
	r.mu.Unlock()
	if !allowed {
		r.cfg.Rejected("heartbeat_rate")
		return
	}
	b, err := parseHeartbeat(data)
	if err != nil {
		r.cfg.Rejected("heartbeat_invalid")
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	e := r.entry(device, now)
	if e == nil {
		return
	}
	d := &e.rec.Device
	level := counters
	if d.Process != b.Process || d.Version != b.Version || d.Epoch != b.Epoch {
		level = turn
	}
	d.Version, d.Process, d.Epoch, d.Class, d.Every = b.Version, b.Process, b.Epoch, b.Class, b.Every
	d.Started, d.Backlog, d.Dropped, d.Quarantine = millis(b.Started), b.Backlog, b.Dropped, b.Quarantine
	d.Disk = admin.Disk{Used: b.DiskUsed, Max: b.DiskMax}
	if at := millis(b.Now); !at.IsZero() {
		offset := at.Sub(now).Milliseconds()
		d.Clock = &offset
	}
	if b.Error != nil {
		d.Error = &admin.DeviceError{Text: b.Error.Text, At: millis(b.Error.Time)}
	}
	if b.Labels != nil && r.labelsFit() {
		d.Labels = b.Labels
	}
	if b.Process != "" && b.Process == e.left {
		d.Seen = now
	} else {
		r.heard(e, now, admin.LinkHeartbeat)
	}
	r.touch(e, level)
}

// Imported notes that a file of the device was taken in. It is no sign of life.
func (r *Registry) Imported(device string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if e := r.entry(device, now); e != nil {
		e.rec.Imported = now
		r.touch(e, turn)
	}
}

// allow is a token bucket per known device; r.mu is held. An unknown device
// is allowed: a valid heartbeat makes it known.
func (r *Registry) allow(device string) bool {
	e := r.lookup(device)
	if e == nil {
		return true
	}
	now := r.now()
	e.tokens = min(beatsBurst, e.tokens+now.Sub(e.refill).Seconds()*beatsRate)
	e.refill = now
	if e.tokens < 1 {
		return false
	}
	e.tokens--
	return true
}

// entry returns the device's entry, made if need be; nil if there are too many
// devices. r.mu is held.
func (r *Registry) entry(device string, now time.Time) *entry {
	if e := r.lookup(device); e != nil {
		return e
	}
	if r.shelf.total >= r.cfg.MaxDevices {
		r.cfg.Rejected("too_many_devices")
		if now.Sub(r.full) >= time.Minute {
			r.full = now
			r.cfg.Log.Warn("the registry is full: a device that it does not know is not shown, though its messages are taken; forget devices that are gone",
				"device", device, "limit", r.cfg.MaxDevices)
		}
		return nil
	}
	e := newEntry(device, now)
	r.settle(r.add(e), e)
	r.announce(device, now)
	return e
}

const newsASecond = 10

// announce logs a new device, unless many come at once; r.mu is held.
func (r *Registry) announce(device string, now time.Time) {
	r.announceRest(now)
	n := &r.fresh
	if n.said == newsASecond {
		n.silent++
		return
	}
	n.said++
	r.cfg.Log.Info("new device", "device", device)
}

// announceRest counts those that were not logged; r.mu is held.
func (r *Registry) announceRest(now time.Time) {
	if now.Sub(r.fresh.since) < time.Second {
		return
	}
	if r.fresh.silent > 0 {
		r.cfg.Log.Info("and more new devices", "devices", r.fresh.silent)
	}
	r.fresh = news{since: now}
}

// labelsFit reports whether labels may be taken over; r.mu is held. Those that a
// device had stay.
func (r *Registry) labelsFit() bool {
	if r.labels < r.cfg.MaxLabels {
		return true
	}
	r.cfg.Rejected("labels_full")
	return false
}

func newEntry(device string, now time.Time) *entry {
	e := &entry{sessions: map[wire.SessionID]struct{}{}, tokens: beatsBurst, refill: now}
	e.rec.Device = admin.Device{Device: device, Created: now, Seen: now, Since: now}
	return e
}

// heard notes a sign of life, and which; r.mu is held.
func (r *Registry) heard(e *entry, now time.Time, reason string) {
	e.rec.Seen = now
	if !e.rec.Online {
		e.rec.Online, e.rec.Since, e.rec.History = true, now, e.rec.History.with(true, reason, now)
		r.cfg.Log.Debug("device online", "device", e.rec.Device.Device)
		r.touch(e, turn)
	}
}

// leave notes that the device's process is gone for good, or its connection is;
// r.mu is held.
func (r *Registry) leave(e *entry, now time.Time, reason string) {
	e.left, e.inbox = e.rec.Process, ""
	r.offline(e, now, reason)
}

// offline is the opposite of heard; r.mu is held.
func (r *Registry) offline(e *entry, now time.Time, reason string) {
	if e.rec.Online {
		e.rec.Online, e.rec.Since, e.rec.History = false, now, e.rec.History.with(false, reason, now)
		r.cfg.Log.Debug("device offline", "device", e.rec.Device.Device)
		r.touch(e, turn)
	}
}

// touch asks for a write; r.mu is held.
func (r *Registry) touch(e *entry, level urgency) {
	e.gen++
	e.dirty = max(e.dirty, level)
	if p, ok := r.shelf.find(e.rec.Device.Device); ok && p.slot().entry == e {
		r.settle(p, e)
	}
	if level == turn {
		r.urgent[e] = struct{}{}
		r.nudge()
	}
}

// nudge asks Run to write turns.
func (r *Registry) nudge() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// now is in UTC and to the millisecond, as it is stored.
func (r *Registry) now() time.Time { return r.cfg.Now().UTC().Truncate(time.Millisecond) }
