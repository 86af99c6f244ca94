package unpack

// Lost counts blocks of the ledger that somebody removed before a stream had
// them. Retention removes none of these. The count is saved with the checkpoint,
// and a hole that is found again after a crash is not counted again.
type Lost struct {
	Blocks uint64 `json:"blocks"` // sequences of the ledger: blocks, pieces, voids and marks
	First  uint64 `json:"first"`  // of the newest hole
	Last   uint64 `json:"last"`   // of the newest hole
}

// lost counts blocks that are gone, if they can have had messages for the
// stream, and reports whether it did. A back-fill is told of in the log only: it
// is asked for what is still there.
func (w *worker) lost(c course, from, first uint64) bool {
	if c.walk == nil && !c.tables.ever(w.stream, from, first) || first <= 1 || from == 0 {
		return false
	}
	if c.walk == nil {
		w.mu.Lock()
		if from = max(from, w.gone.Last+1); from < first {
			w.gone = Lost{Blocks: w.gone.Blocks + first - from, First: from, Last: first - 1}
		}
		w.mu.Unlock()
		if from >= first {
			return false
		}
	}
	w.u.cfg.Log.Error("blocks were removed before they were unpacked", "stream", w.stream, "first", from, "last", first-1)
	return c.walk == nil
}

func (w *worker) lostSoFar() Lost {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone
}

// countFrom begins with what is durable.
func (w *worker) countFrom(l Lost) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = l
}

// forgetLost keeps the count and forgets where: a new ledger counts from 1 again.
func (w *worker) forgetLost() {
	w.countFrom(Lost{Blocks: w.lostSoFar().Blocks})
}
