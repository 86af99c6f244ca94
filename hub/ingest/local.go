package ingest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// errStopped means that Run has ended.
var errStopped = errors.New("ingest: stopped")

// local is a session of the hub's own for a device: a file that is imported. It
// goes through the receiver like any other, so that all rules hold; only its
// messages do not travel, and the registry does not take it for a sign of life.
type local struct {
	in      *Ingest
	device  string
	id      wire.SessionID
	counter uint64        // of the last frame; owned by who sends
	news    chan struct{} // capacity 1: there is something new

	mu       sync.Mutex
	opened   bool                      // the request was answered; guarded by mu
	received map[wire.Flow]wire.Ranges // guarded by mu
	ended    *wire.SessionError        // guarded by mu
}

// openLocal opens a session in fifo. The error is a *wire.SessionError if the
// receiver refuses it.
func (in *Ingest) openLocal(ctx context.Context, device string, flows []wire.FlowHeld) (*local, error) {
	var process [5]byte
	rand.Read(process[:]) // never fails (crypto/rand, Go 1.24)
	data, err := json.Marshal(wire.Open{
		Protocol: wire.Protocol, Process: "import-" + hex.EncodeToString(process[:]), Order: "fifo", Flows: flows,
	})
	if err != nil {
		return nil, fmt.Errorf("ingest: encode an open: %w", err)
	}
	l := &local{in: in, device: device, news: make(chan struct{}, 1), received: map[wire.Flow]wire.Ranges{}}
	rand.Read(l.id[:])
	in.put(event{in: uplink.RecvOpen{Device: device, Session: l.id, Data: data}, local: l})
	for {
		if err := l.wait(ctx); err != nil {
			return nil, err
		}
		l.mu.Lock()
		opened, ended := l.opened, l.ended
		l.mu.Unlock()
		switch {
		case ended != nil:
			return nil, ended
		case opened:
			return l, nil
		}
	}
}

// wait returns when there is something new.
func (l *local) wait(ctx context.Context) error {
	select {
	case <-l.news:
		return nil
	case <-l.in.stopped:
		return errStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// send hands over a frame. It returns the body, which must not change any more.
func (l *local) send(t wire.FrameType, body []byte) []byte {
	l.counter++
	data := wire.AppendFrame(nil, wire.Frame{Type: t, Session: l.id, Counter: l.counter, Body: body})
	l.in.put(event{in: uplink.RecvFrame{Device: l.device, Data: data}})
	return data[len(data)-len(body):]
}

// close ends the session, if it has not ended yet.
func (l *local) close() { l.send(wire.FrameBye, nil) }

// state is the received set of a flow, and how the session ended, nil if it has not.
func (l *local) state(f wire.Flow) (wire.Ranges, *wire.SessionError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.received[f], l.ended
}

// told notes what the receiver says. It never blocks.
func (l *local) told(flows []wire.FlowReceived, opened bool, end *wire.SessionError) {
	l.mu.Lock()
	for _, f := range flows { // each set is complete
		l.received[f.Flow] = f.Ranges
	}
	l.opened = l.opened || opened
	l.ended = end
	l.mu.Unlock()
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// tellLocal answers a local session; it reports whether a is for one.
func (in *Ingest) tellLocal(a uplink.RecvAction) bool {
	switch a := a.(type) {
	case uplink.DoReply:
		l := in.asking[a.Request]
		if l == nil {
			return false
		}
		delete(in.asking, a.Request)
		if a.Err == nil {
			in.locals[l.id] = l
		}
		l.told(a.Received, a.Err == nil, a.Err)
	case uplink.DoAck:
		l := in.locals[a.Session]
		if l == nil {
			return false
		}
		l.told(a.Ack.Flows, false, nil)
	case uplink.DoEnd:
		l := in.locals[a.Session]
		if l == nil {
			return false
		}
		delete(in.locals, a.Session)
		if a.Err != nil {
			l.told(nil, false, a.Err)
		}
	default:
		return false
	}
	return true
}
