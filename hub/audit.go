package hub

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
)

const (
	auditText  = 1 << 10 // bytes of an object or outcome
	auditBegun = "begun"
)

// audited writes down who asks for a change, before it is made: what cannot be
// written down is refused, and answered here with ok false. done writes down how
// it ended, before the caller answers; if only that fails, the change stands, the
// log says so, and the entry that it was begun stays. An action is one token.
func (p *parts) audited(w http.ResponseWriter, r *http.Request, action, object string) (done func(outcome string), ok bool) {
	e := admin.AuditEntry{Action: action, Actor: actor(r), Object: short(object), Outcome: auditBegun}
	seq, err := p.writeAudit(r.Context(), e)
	if err != nil {
		p.hub.cfg.Log.Error("a change is refused, as it cannot be written down", "action", action, "actor", e.Actor, "object", e.Object, "error", err)
		problem(w, http.StatusServiceUnavailable, "not_audited", "nothing was changed, because the change cannot be written down in the stream AUDIT: "+err.Error())
		return nil, false
	}
	return func(outcome string) {
		e.Outcome, e.Of = short(outcome), seq
		if _, err := p.writeAudit(context.WithoutCancel(r.Context()), e); err != nil {
			p.hub.cfg.Log.Error("how a change ended cannot be written down", "action", action, "actor", e.Actor, "object", e.Object, "outcome", e.Outcome, "begun", seq, "error", err)
		}
	}, true
}

func (p *parts) writeAudit(ctx context.Context, e admin.AuditEntry) (seq uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	data, err := json.Marshal(e)
	if err == nil {
		err = p.hub.cfg.Fault("audit:write")
	}
	if err != nil {
		return 0, err
	}
	return p.store.PublishBatch(ctx, []store.Msg{{Subject: store.AuditPrefix + e.Action, Data: data}})
}

// actor is who asks: the address, or local for this machine.
func actor(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Unmap().IsLoopback() {
		return "local"
	}
	return host
}

// outcome words how a change ended.
func outcome(err error) string {
	if err != nil {
		return "failed: " + err.Error()
	}
	return "done"
}

// short bounds what an entry holds.
func short(s string) string {
	if len(s) > auditText {
		s = strings.ToValidUTF8(s[:auditText], "") + "…"
	}
	return s
}
