package uplink

import (
	"encoding/json"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// How often a heartbeat is sent, by the class of the link.
const (
	beatEvery        = 30 * time.Second
	beatEveryMetered = time.Hour
)

// heartbeat reports the agent's state if a session is open; the next one starts
// with a heartbeat anyway.
func (r *run) heartbeat() {
	if !r.sender.Up() {
		return
	}
	every := beatEvery
	if r.cfg.Class() == Metered {
		every = beatEveryMetered
	}
	r.beat.Reset(every)
	h := r.cfg.Heartbeat()
	h.Version, h.Process, h.Labels, h.Class = r.cfg.Version, r.cfg.Process, r.cfg.Labels, r.cfg.Class()
	h.Every = int(every / time.Second)
	h.Now = r.cfg.Now().Add(r.status.RTT / 2).UnixMilli()
	trouble := ""
	if h.Error != nil {
		trouble = h.Error.Text
	}
	if trouble != r.trouble {
		r.wrong(trouble)
	}
	r.trouble = trouble
	if h.Error = nil; !r.told {
		h.Error, r.told = r.fault, true
	}
	data, err := json.Marshal(h)
	if err != nil {
		r.quiet.say("no heartbeat", err)
		return
	}
	r.send(message{subject: wire.UpSubject(r.cfg.Device), data: data})
}

// wrong notes what is wrong from now on, for the next heartbeat; empty: nothing.
func (r *run) wrong(text string) {
	if text != "" {
		r.fault, r.told = wire.NewLastError(text, r.cfg.Now()), false
	}
}
