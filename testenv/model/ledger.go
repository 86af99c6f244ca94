package model

import (
	"errors"

	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

var errGuard = errors.New("guard failed")

// subject is the ledger's literal subject: one flow of one device.
type subject struct {
	device string
	flow   wire.Flow
}

// record is one message of the ledger.
type record struct {
	seq      uint64
	subject  subject
	received wire.Ranges
	data     []byte // nil: a mark
}

// ledger is the BLOCKS stream: appended to under guards, purged from below.
type ledger struct {
	records []record // those not purged
	lastSeq uint64
	last    map[subject]record // newest not purged, by subject
	check   *checker
}

// commit stores a batch as JetStream does: all of it if every guard holds.
// upTo < len(blocks) imitates a storage error in mid-commit.
func (l *ledger) commit(blocks []uplink.LedgerBlock, upTo int) (last uint64, err error) {
	for _, b := range blocks {
		if b.Guarded && l.last[subject{b.Device, b.Flow}].seq != b.Guard {
			return 0, errGuard
		}
	}
	for _, b := range blocks[:upTo] {
		l.append(record{subject: subject{b.Device, b.Flow}, received: b.Received, data: b.Data})
		l.check.stored(b)
	}
	return l.lastSeq, nil
}

func (l *ledger) append(r record) {
	l.lastSeq++
	r.seq = l.lastSeq
	l.records = append(l.records, r)
	l.last[r.subject] = r
}

// retain removes the records up to seq. Before a subject would be emptied a mark
// keeps its received set, unless the rule is off.
func (l *ledger) retain(seq uint64, mark bool) {
	n := 0
	for n < len(l.records) && l.records[n].seq <= seq {
		n++
	}
	for _, r := range l.records[:n] {
		if l.last[r.subject].seq != r.seq {
			continue
		}
		if mark {
			l.append(record{subject: r.subject, received: r.received})
		} else {
			delete(l.last, r.subject)
		}
	}
	l.records = l.records[n:]
}

// next returns the first record after seq.
func (l *ledger) next(seq uint64) (record, bool) {
	for _, r := range l.records {
		if r.seq > seq {
			return r, true
		}
	}
	return record{}, false
}
