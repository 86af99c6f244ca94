package agent

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fieldpost/fieldpost/spool"
	"github.com/fieldpost/fieldpost/sync/policy"
	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// statusJSON is GET /v1/status.
type statusJSON struct {
	Device     string                 `json:"device"`
	Epoch      string                 `json:"epoch"` // empty before the first message of this run
	Version    string                 `json:"version"`
	Link       linkJSON               `json:"link"`
	Backlog    map[wire.Lane]laneJSON `json:"backlog"`
	Disk       diskJSON               `json:"disk"`
	Dropped    map[string]uint64      `json:"dropped"`
	Quarantine quarantineJSON         `json:"quarantine"`
	Commands   commandsJSON           `json:"commands"`
	Desired    *desiredStatus         `json:"desired,omitempty"`      // if the hub has ever wanted something
	Memory     int64                  `json:"memory_bytes,omitempty"` // of the backlog, what is in memory only
	Keys       []keyUseJSON           `json:"keys,omitempty"`
}

type linkJSON struct {
	Up        bool       `json:"up"`
	Hub       string     `json:"hub"`
	Since     *time.Time `json:"since"`
	RTT       float64    `json:"rtt_ms"`
	LastError string     `json:"last_error"`
	Class     string     `json:"class"`

	MaxRate int64               `json:"max_rate,omitempty"` // bytes a second
	Budget  *budgetJSON         `json:"budget,omitempty"`   // of link.daily_bytes
	Windows map[string]laneOpen `json:"windows,omitempty"`  // of lanes that a window of this class names
	History []transitionJSON    `json:"history"`            // the last ten, newest first
}

type budgetJSON struct {
	Daily   int64      `json:"daily_bytes"`
	Used    int64      `json:"used_bytes"`
	Left    int64      `json:"left_bytes"`
	Renewed *time.Time `json:"renewed"`
}

type laneOpen struct {
	Open  bool       `json:"open"`
	Until *time.Time `json:"until"` // when that changes
}

// limits adds what the policy says.
func (l *linkJSON) limits(s policy.State) {
	l.MaxRate = s.MaxRate
	if s.DailyBytes > 0 {
		l.Budget = &budgetJSON{s.DailyBytes, s.Used, s.Left(), timeOrNull(s.Renewed)}
	}
	for i, lane := range s.Lanes {
		if !lane.Windowed {
			continue
		}
		if l.Windows == nil {
			l.Windows = map[string]laneOpen{}
		}
		l.Windows[wire.Lane(i).String()] = laneOpen{lane.Open, timeOrNull(lane.Until)}
	}
}

// transitionJSON is one change of the link.
type transitionJSON struct {
	At     *time.Time `json:"at"`
	Up     bool       `json:"up"`
	Hub    string     `json:"hub"`    // that answered, or that is lost
	Reason string     `json:"reason"` // why it is down, or what kept it down before
}

type laneJSON struct {
	Messages uint64     `json:"messages"`
	Bytes    int64      `json:"bytes"`
	Oldest   *time.Time `json:"oldest"`
}

type diskJSON struct {
	Used int64 `json:"used"`
	Max  int64 `json:"max"`
	Free int64 `json:"free"`
}

type quarantineJSON struct {
	Segments uint64   `json:"segments"`
	Messages uint64   `json:"messages"`
	Reports  []string `json:"reports"`
}

// keyUseJSON is a key of spool.key_file; the id is empty for what is not encrypted.
type keyUseJSON struct {
	ID       string `json:"id"`
	Segments int    `json:"segments"` // that need it
	Current  bool   `json:"current"`  // encrypts new segments
}

func (a *Agent) status(w http.ResponseWriter, r *http.Request) *problem {
	st, p := a.gate.enter()
	if p != nil {
		return p
	}
	stats := st.Stats()
	a.gate.leave()
	return writeJSON(w, http.StatusOK, a.statusOf(stats, a.uplink().Status()))
}

func (a *Agent) statusOf(s spool.Stats, l uplink.Status) statusJSON {
	out := statusJSON{
		Device: a.device, Version: a.cfg.Version,
		Link: linkJSON{
			Up: l.Up, Hub: l.Hub, Since: timeOrNull(l.Since), LastError: l.LastError, Class: a.linkClass(),
			RTT: float64(l.RTT.Microseconds()) / 1000, History: []transitionJSON{},
		},
		Backlog:    map[wire.Lane]laneJSON{},
		Disk:       diskJSON{Used: s.DiskUsed, Max: s.DiskMax, Free: s.DiskFree},
		Dropped:    map[string]uint64{},
		Quarantine: quarantineJSON{Segments: s.Quarantine.Segments, Messages: s.Quarantine.Messages, Reports: append([]string{}, s.Quarantine.Reports...)},
	}
	out.Link.limits(a.policy.State(time.Now()))
	if !s.Epoch.IsZero() {
		out.Epoch = s.Epoch.String()
	}
	for i, l := range s.Lanes {
		out.Backlog[wire.Lane(i)] = laneJSON{Messages: l.Messages, Bytes: l.Bytes, Oldest: timeOrNull(l.Oldest)}
	}
	for reason, n := range a.dropped(s) {
		out.Dropped[reason.String()] = n
	}
	for _, t := range l.History {
		out.Link.History = append(out.Link.History, transitionJSON{timeOrNull(t.At), t.Up, t.Hub, t.Reason})
	}
	out.Commands = a.commandsStatus()
	out.Desired = a.desiredStatus()
	out.Memory = s.Memory
	for _, k := range s.Keys {
		out.Keys = append(out.Keys, keyUseJSON(k))
	}
	return out
}

// dropped is what was accepted and will never be delivered, by reason.
func (a *Agent) dropped(s spool.Stats) map[wire.Reason]uint64 {
	out := map[wire.Reason]uint64{}
	for reason, n := range s.Dropped {
		if n > 0 {
			out[reason] = n
		}
	}
	if n := a.rewound.Load(); n > 0 {
		out[wire.ReasonHubRewound] += n
	}
	return out
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Millisecond)
	return &t
}

// putLink is PUT /v1/link: whoever switches the links tells which is up.
func (a *Agent) putLink(w http.ResponseWriter, r *http.Request) *problem {
	const example = `{"class":"metered"}`
	bd, p := a.readBody(w, r, 4<<10, "what this needs")
	if p != nil {
		return p
	}
	defer bd.release(a)
	var in struct {
		Class string `json:"class"`
	}
	if err := json.Unmarshal(bd.b, &in); err != nil {
		return newProblem(codeBadRequest, "the body is not like %s: %v", example, err)
	}
	if names := a.tuned.Load().Link.classes(); !slices.Contains(names, in.Class) {
		return newProblem(codeBadRequest, "class %q is not one of %s; another name has to be the class of a window in link.windows", in.Class, strings.Join(names, ", "))
	}
	a.setLinkClass(in.Class)
	return writeJSON(w, http.StatusOK, in)
}

// resetHub is POST /v1/hub/reset: the next hub that answers is accepted.
func (a *Agent) resetHub(w http.ResponseWriter, r *http.Request) *problem {
	if _, p := a.gate.enter(); p != nil {
		return p
	}
	defer a.gate.leave()
	if err := a.uplink().ResetHub(); err != nil {
		return problemOf(err)
	}
	a.log.Warn("hub reset: the next hub that answers is accepted")
	return writeJSON(w, http.StatusOK, map[string]string{"state": "reset"})
}

// healthz says that the process answers.
func (a *Agent) healthz(w http.ResponseWriter, r *http.Request) *problem {
	return writeJSON(w, http.StatusOK, map[string]string{"state": a.gate.now().String()})
}

// readyz says whether a publish would be taken. A link that is down is no reason.
func (a *Agent) readyz(w http.ResponseWriter, r *http.Request) *problem {
	if p := a.trouble(); p != nil {
		return p
	}
	return writeJSON(w, http.StatusOK, map[string]string{"state": ready.String()})
}
