package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// act does what the receiver asks for. A message to a device that cannot be
// sent is lost like one on the way: the session notices.
func (in *Ingest) act(work context.Context, a uplink.RecvAction) {
	if in.tellLocal(a) {
		return
	}
	switch a := a.(type) {
	case uplink.DoReply:
		in.reply(a)
	case uplink.DoIgnore:
		delete(in.replies, a.Request)
	case uplink.DoAck:
		if in.cfg.Fault("ack:send") == nil {
			in.buf = wire.AppendAck(in.buf[:0], a.Ack)
			in.send(wire.SessionSubject(a.Device, a.Session), in.buf)
		}
	case uplink.DoEnd:
		in.end(a)
	case uplink.DoRead:
		in.reads = append(in.reads, a)
		in.startReads(work)
	case uplink.DoCommit:
		in.work.Go(func() { in.commit(work, a) })
	case uplink.DoConfirm:
		in.cfg.Registry.Confirmed(a.Device, a.Token)
	case uplink.DoClose:
		in.cfg.Hooks.Closed(a.Device, a.Epoch)
	case uplink.DoCount:
		in.report.count(a)
	default:
		panic(fmt.Sprintf("ingest: unknown action %T", a))
	}
}

// reply answers an open request.
func (in *Ingest) reply(a uplink.DoReply) {
	subject := in.replies[a.Request]
	delete(in.replies, a.Request)
	r := wire.OpenReply{
		Protocol: wire.Protocol, Error: a.Err, HubID: in.cfg.HubID, Time: in.now.UnixMilli(),
	}
	if a.Err == nil {
		id := wire.Epoch(a.Session)
		r.Session, r.Instance = &id, in.cfg.Instance
		r.Received, r.Partial = a.Received, a.Partial
		if slices.Contains(a.Open.Streams, wire.StreamName) {
			r.Stream = wire.StreamName
		}
		r.MaxPayload, r.Window = in.cfg.Limits.MaxBlock, in.cfg.Limits.Window
		r.Token, r.Notice = in.cfg.Registry.Opened(a.Device, a.Open, a.Session)
	}
	in.report.opened(a, r.Notice)
	data, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("ingest: encode a reply: %v", err)) // strings, numbers and ranges
	}
	if in.cfg.Fault("open:reply") == nil {
		in.send(subject, data)
	}
}

// end tells a session that it has ended, and the registry.
func (in *Ingest) end(a uplink.DoEnd) {
	if !a.Stray {
		in.cfg.Registry.Ended(a.Device, a.Session, a.Err == nil)
		in.report.ended(a)
	}
	if a.Err == nil || in.cfg.Fault("end:send") != nil {
		return
	}
	subject := wire.SessionSubject(a.Device, a.Session)
	if a.Stray {
		subject = wire.StraySubject(a.Device, in.cfg.Instance)
	}
	in.buf = wire.AppendEnd(in.buf[:0], *a.Err)
	in.send(subject, in.buf)
}
