package ingest

import (
	"log/slog"
	"time"

	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// warnEvery is how often trouble with the ledger is logged.
const warnEvery = 10 * time.Second

// report counts and logs what happens. It is owned by Run.
type report struct {
	log   *slog.Logger
	hooks Hooks

	failed     int       // batches in a row
	failing    time.Time // since then
	warned     time.Time
	readWarned time.Time
}

// reject counts what was refused or not looked at.
func (r *report) reject(reason string) { r.hooks.Rejected(reason) }

func (r *report) count(a uplink.DoCount) {
	switch a.What {
	case uplink.CountDuplicate:
		r.hooks.Block("duplicate", 1)
	case uplink.CountFound:
		r.hooks.Block("stored", 1)
		r.hooks.Messages(a.Messages)
	default:
		r.reject(a.What)
	}
}

func (r *report) opened(a uplink.DoReply, notice string) {
	if a.Err != nil {
		r.reject(a.Err.Code)
		r.log.Debug("session refused", "device", a.Device, "code", a.Err.Code, "detail", a.Err.Detail)
		return
	}
	r.log.Debug("session opened", "device", a.Device, "session", a.Session.String(), "version", a.Open.Version, "notice", notice)
}

func (r *report) ended(a uplink.DoEnd) {
	if a.Err == nil {
		r.log.Debug("session ended by the agent", "device", a.Device, "session", a.Session.String())
		return
	}
	switch a.Err.Code {
	case wire.CodePartial, wire.CodeEarly:
		r.hooks.Block(a.Err.Code, 1)
	}
	r.reject(a.Err.Code)
	r.log.Debug("session ended", "device", a.Device, "session", a.Session.String(), "code", a.Err.Code, "detail", a.Err.Detail)
}

// batch counts a batch that has ended.
func (r *report) batch(now time.Time, how uplink.Outcome, blocks []uplink.LedgerBlock, err error) {
	if how != uplink.OutcomeStored {
		r.hooks.Block("failed", len(blocks))
		if how != uplink.OutcomeGuard { // of which the receiver takes care
			r.trouble(now, err)
		}
		return
	}
	stored, voids, messages := 0, 0, uint64(0)
	for i := range blocks {
		if blocks[i].Void != 0 {
			voids++
		} else {
			stored++
			messages += blocks[i].Range.Len()
		}
		r.hooks.Acked(now.Sub(blocks[i].Arrived))
	}
	if stored > 0 {
		r.hooks.Block("stored", stored)
		r.hooks.Messages(messages)
	}
	if voids > 0 {
		r.hooks.Block("void", voids)
	}
	if r.failed > 0 {
		r.log.Info("the ledger stores again", "after", now.Sub(r.failing).Round(time.Millisecond), "failed", r.failed)
		r.failed, r.warned = 0, time.Time{}
	}
}

// trouble logs that the ledger fails, now and then.
func (r *report) trouble(now time.Time, err error) {
	if r.failed++; r.failed == 1 {
		r.failing = now
	}
	if now.Sub(r.warned) >= warnEvery {
		r.warned = now
		r.log.Warn("the ledger does not store; nothing is acked until it does", "error", err, "failed", r.failed)
	}
}

// read logs that the ledger cannot be read, now and then.
func (r *report) read(now time.Time, err error) {
	if err != nil && now.Sub(r.readWarned) >= warnEvery {
		r.readWarned = now
		r.log.Warn("the ledger cannot be read; the sessions concerned wait", "error", err)
	}
}
