package testenv

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/dashboard"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// standIn answers the dashboard like a hub on which something is going on.
type standIn struct {
	mux *http.ServeMux
	url string

	mu    sync.Mutex
	audit []admin.AuditEntry // the oldest first; guarded by mu
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

func newStandIn(t *testing.T) *standIn {
	s := &standIn{mux: http.NewServeMux()}
	page := dashboard.New()
	for _, p := range page.Patterns() {
		s.mux.Handle(p, page)
	}
	for path, v := range furnishings(time.Now()) {
		s.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { answer(w, v) })
	}
	s.mux.HandleFunc("GET /v1/audit", s.listAudit)
	s.mux.HandleFunc("GET /v1/tail", func(w http.ResponseWriter, r *http.Request) {
		for i := range 12 {
			answer(w, admin.Message{Subject: "edge.press-7.sensors.temp", Seq: uint64(9000 + i), Time: time.Now(), Payload: fmt.Appendf(nil, `{"celsius":%d,"line":4}`, 60+i),
				Headers: map[string][]string{"Fieldpost-Epoch": {"6f1d0c2b9a3e4758"}, "Fieldpost-Seq": {strconv.Itoa(4700 + i)}, "Fieldpost-Time": {"2026-05-01T12:00:00Z"}}})
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	srv := httptest.NewServer(s.mux)
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	s.url = srv.URL
	return s
}

// changed adds a change to the audit; without an outcome it stays open.
func (s *standIn) changed(action, object, outcome string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seq := uint64(len(s.audit) + 1)
	s.audit = append(s.audit, admin.AuditEntry{Seq: seq, Time: time.Now(), Action: action, Actor: "local", Object: object, Outcome: "begun"})
	if outcome != "" {
		s.audit = append(s.audit, admin.AuditEntry{Seq: seq + 1, Time: time.Now(), Action: action, Actor: "local", Object: object, Outcome: outcome, Of: seq})
	}
}

func (s *standIn) listAudit(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	at := func(name string, none uint64) uint64 {
		n, err := strconv.ParseUint(q.Get(name), 10, 64)
		if err != nil {
			n = none
		}
		return n
	}
	s.mu.Lock()
	all := slices.Clone(s.audit)
	s.mu.Unlock()
	out := admin.Audit{Entries: []admin.AuditEntry{}}
	if q.Get("order") == "newest" {
		slices.Reverse(all)
	}
	for _, e := range all {
		if e.Seq <= at("after", 0) || e.Seq >= at("before", 1<<63) || !strings.HasPrefix(e.Action, q.Get("action")) {
			continue
		}
		if n := len(out.Entries); uint64(n) == at("limit", 100) {
			out.Next = out.Entries[n-1].Seq
			break
		}
		out.Entries = append(out.Entries, e)
	}
	answer(w, out)
}

// furnishings are the answers by path.
func furnishings(now time.Time) map[string]any {
	fleet := furnishedFleet(now)
	streams := []admin.Stream{{Name: "BLOCKS", Messages: 81234, Bytes: 3 << 30, MaxBytes: 10 << 30, First: 11, Last: 81244}, {Name: "EDGE", Messages: 4711000, Bytes: 9 << 30, MaxBytes: 10 << 30, First: 1, Last: 4711000},
		{Name: "ALARMS", Messages: 312, Bytes: 90 << 10, MaxBytes: 1 << 30, First: 1, Last: 312}, {Name: "DEAD", Messages: 3, Bytes: 4100, MaxBytes: 1 << 30, First: 2, Last: 19}}
	routes := []admin.RouteState{{Route: admin.Route{Match: "alarms.>", Stream: "ALARMS", Prefix: "alarms"}, MaxAge: 2592000, Discard: "new"},
		{Route: admin.Route{Match: "debug.>", Packed: true}}, {Route: admin.Route{Match: ">", Stream: "EDGE", Prefix: "edge", Lag: 41}, MaxAge: 604800, Discard: "old"}}
	letters := []admin.Letter{{Seq: 2, Time: now.Add(-26 * time.Hour), Stream: "EDGE", Subject: "edge.press-7.orders.new", Reason: "terminated", Detail: "no such order", Consumer: "billing", Deliveries: 1, StreamSeq: 4021, Size: 91},
		{Seq: 17, Time: now.Add(-time.Hour), Stream: "EDGE", Subject: "edge.press-9.orders.new", Reason: "max_deliveries", Consumer: "billing", Deliveries: 5, StreamSeq: 99021, Size: 1204},
		{Seq: 19, Time: now.Add(-time.Minute), Stream: "gap", Subject: "press-3", Reason: "drop_oldest", Size: 0, Refusal: "a gap has no content"}}
	payload := `{"order":93,"pieces":12}`
	commands := []admin.Command{}
	for i, st := range []wire.CommandState{"pending", "delivered", "acked", "failed", "expired", "cancelled"} {
		c := admin.Command{ID: fmt.Sprintf("c%d", i+1), Device: "press-7", Subject: "valve.set", State: st, Sent: now.Add(time.Duration(i-60) * time.Minute), Expires: now.Add(23 * time.Hour)}
		if i > 1 {
			c.Settled, c.Reason = c.Sent.Add(3*time.Second), map[wire.CommandState]string{"failed": "the valve is stuck", "expired": "its time to live was over"}[st]
		}
		if st == "acked" {
			c.Result = []byte(`{"open":true}`)
		}
		commands = append(commands, c)
	}
	plain := []admin.Route{}
	for _, r := range routes {
		plain = append(plain, r.Route)
	}
	online := len(slices.DeleteFunc(slices.Clone(fleet), func(d admin.Device) bool { return !d.Online }))
	return map[string]any{
		"/v1/status": admin.Status{HubID: "0f1e2d3c4b5a6978", Version: "1.0.0", Instance: "hub-1", Started: now, Ready: true, Reasons: []string{}, NATS: "nats://127.0.0.1:4222",
			Notes: []string{"the clock of press-4 is 3 minutes ahead"}, Streams: streams, Routes: plain, Devices: admin.DeviceNumbers{Online: online, Total: len(fleet), Backlog: 48213},
			Webhooks: []admin.Webhook{{Name: "erp", URL: "https://erp.example", Stream: "EDGE"}, {Name: "pager", URL: "https://pager.example", Stream: "ALARMS", Error: "503 since 4 minutes"}}},
		"/v1/devices":                  admin.Devices{Devices: fleet, Online: online, Total: len(fleet)},
		"/v1/devices/press-7":          fleet[6],
		"/v1/devices/press-7/commands": admin.Commands{Commands: commands},
		"/v1/devices/press-7/desired": admin.DesiredDevice{Device: "press-7", State: admin.DesiredRefused, Reason: `agent.log.level: "loud" is not one of debug, info, warn, error`, Version: "7-ab",
			Merged: json.RawMessage(`{"agent":{"log":{"level":"loud"}},"pump":{"speed":3}}`), Documents: []admin.DesiredDocument{}, Labels: true},
		"/v1/devices/press-7/trace": admin.Trace{Device: "press-7", Epoch: "6f1d0c2b9a3e4758", Lane: "normal", Seq: 4711, Subject: "sensors.temp", State: "stored", Steps: []admin.TraceStep{
			{Hop: "ledger", State: "received", Block: 80001, Time: now, Text: "in block 80001 of BLOCKS"}, {Hop: "stream", State: "stored", Stream: "EDGE", Seq: 9011, Text: "in EDGE at 9011"},
			{Hop: "consumer", State: "settled", Consumer: "billing", Text: "billing has settled it"}}},
		"/v1/routes": admin.Routes{Routes: routes, Orphans: []admin.Orphan{}, Unrouted: admin.Unrouted{}},
		"/v1/dead":   admin.Letters{Letters: letters}, "/v1/dead/2": admin.WholeLetter{Letter: letters[0], Text: &payload},
	}
}

// furnishedFleet is a dozen devices; the seventh has had an outage.
func furnishedFleet(now time.Time) []admin.Device {
	fleet := []admin.Device{}
	for i := range 12 {
		d := admin.Device{Device: fmt.Sprintf("press-%d", i+1), Online: i%4 != 2, Since: now.Add(-time.Duration(i+1) * time.Hour), Seen: now.Add(-time.Duration(i) * time.Second),
			Created: now.Add(-2000 * time.Hour), Version: "1.0.0", Started: now.Add(-90 * time.Hour), Every: 30, Class: "unmetered", Instance: "hub-1", Epoch: "6f1d0c2b9a3e4758",
			Backlog: map[string]wire.LaneBacklog{"urgent": {}, "normal": {Messages: uint64(i * 731), Bytes: int64(i * 90_000), Oldest: now.Add(-time.Duration(i) * time.Minute).UnixMilli()}, "bulk": {}},
			Disk:    admin.Disk{Used: int64(i+1) << 24, Max: 1 << 30}, Labels: map[string]string{"site": []string{"north", "south"}[i%2], "line": strconv.Itoa(i % 5)}}
		if !d.Online {
			d.Seen, d.Error = d.Since, &admin.DeviceError{Text: "hub is not reachable: connection refused", At: d.Since}
		}
		if i == 4 {
			d.Clones, d.Quarantine, d.Dropped = &admin.Clones{Reports: 2, Last: now.Add(-3 * time.Hour)}, 1, map[string]uint64{"ttl": 31}
		}
		fleet = append(fleet, d)
	}
	d := &fleet[6]
	d.Online, d.Seen, d.Error = true, now, nil
	for i, k := range []struct {
		hours  float64
		reason string
	}{{70, admin.LinkSession}, {31, admin.LinkLost}, {29.5, admin.LinkSession}, {9, admin.LinkEnded}, {8.9, admin.LinkSession}, {7.5, admin.LinkSilent}, {7, admin.LinkHeartbeat}} {
		d.Links = append(d.Links, admin.Link{At: now.Add(-time.Duration(k.hours * float64(time.Hour))).Truncate(time.Second), Online: i%2 == 0, Reason: k.reason})
	}
	return fleet
}
