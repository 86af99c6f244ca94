package webhook

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// dueFor is how long held messages wait for those before them that come again: a
// delay's end is the server's to see, and another instance may have taken them and
// be at its own request.
func (w *worker) dueFor() time.Duration { return 2 * w.hook.Timeout }

// hold keeps messages that were fetched and not posted, because those before them
// failed. They are not given back: that would count as a delivery.
func (w *worker) hold(batch []delivery) { w.held = append(w.held, batch...) }

// keep tells JetStream that the held messages are being worked on.
func (w *worker) keep(held []delivery) {
	for _, d := range held {
		if err := d.msg.InProgress(); err != nil { // it may come twice
			w.cfg.Log.Debug("a message of a webhook waits unknown to JetStream", "webhook", w.hook.Name, "seq", d.line.Seq, "err", err)
		}
	}
}

// pause waits for d, or until ctx ends.
func (w *worker) pause(ctx context.Context, d time.Duration) {
	for until := time.Now().Add(d); ctx.Err() == nil; {
		w.keep(w.held)
		left := time.Until(until)
		if left <= 0 {
			return
		}
		sleep(ctx, min(left, w.hook.consumer().AckWait/3))
	}
}

// again notes which of a batch that failed come once more, before what is held.
func (w *worker) again(batch []delivery) {
	for _, d := range batch {
		if w.hook.MaxDeliver == 0 || d.line.Deliveries < uint64(w.hook.MaxDeliver) {
			w.due = append(w.due, d.seq)
		}
	}
}

// complete reports whether everything that is due has come.
func (w *worker) complete(batch []delivery) bool {
	for _, seq := range w.due {
		if !slices.ContainsFunc(batch, func(d delivery) bool { return d.seq == seq }) {
			return false
		}
	}
	return true
}

// inOrder sorts a batch. Of a message that came twice the later delivery counts.
func inOrder(batch []delivery) []delivery {
	slices.SortStableFunc(batch, func(a, b delivery) int {
		return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(b.line.Deliveries, a.line.Deliveries))
	})
	return slices.CompactFunc(batch, func(a, b delivery) bool { return a.seq == b.seq })
}
