package model

import (
	"math/rand/v2"

	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// conn is one connection of an agent. What an agent sent before the connection
// died may still arrive, all of it or the beginning: late frames.
type conn struct {
	agent *agent
	dead  bool // for the agent
	up    []upMessage
	down  []uplink.Event
}

// upMessage is an open request (open not nil) or a frame.
type upMessage struct {
	open     *wire.Open
	instance string
	frame    []byte
}

// kill ends the connection as the agent sees it.
func (c *conn) kill(rng *rand.Rand) {
	c.dead, c.down = true, nil
	if rng.IntN(2) == 0 {
		c.up = c.up[:rng.IntN(len(c.up)+1)]
	}
}

// deliver hands the oldest message to the hub.
func (w *world) deliver(c *conn) {
	m := c.up[0]
	c.up = c.up[1:]
	if w.calm == 0 && w.rng.IntN(60) == 0 {
		return // a frame is lost in the middle: the counter has a gap
	}
	if m.open != nil {
		in := w.instances[w.rng.IntN(len(w.instances))]
		w.opens++
		in.requests[w.opens] = c
		var id wire.SessionID
		for i := range id {
			id[i] = byte(w.rng.Uint32())
		}
		in.step(uplink.RecvOpen{Request: w.opens, Device: c.agent.device, Session: id, Data: mustJSON(m.open)})
		return
	}
	for _, in := range w.instances {
		if in.name == m.instance {
			in.step(uplink.RecvFrame{Device: c.agent.device, Data: m.frame})
		}
	}
	if w.calm == 0 && w.rng.IntN(60) == 0 { // delivered twice
		for _, in := range w.instances {
			if in.name == m.instance {
				in.step(uplink.RecvFrame{Device: c.agent.device, Data: m.frame})
			}
		}
	}
}
