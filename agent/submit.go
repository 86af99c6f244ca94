package agent

import (
	"github.com/fieldpost/fieldpost/spool"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// refuseNow is why every publish is refused, before anybody looks at it. The
// spool is asked by publishing only: that is what makes it try again after a fault.
func (a *Agent) refuseNow() *problem {
	_, p := a.gate.enter()
	if p == nil {
		a.gate.leave()
	}
	return p
}

// trouble is why the spool took nothing when it was last tried.
func (a *Agent) trouble() *problem {
	st, p := a.gate.enter()
	if p != nil {
		return p
	}
	defer a.gate.leave()
	return problemOf(st.Err())
}

// submit hands messages of one lane to the spool, all or none. It returns why
// they were not taken, or nil; then done is called once, with what became of
// them, from the spool's commit loop: it must not block. Until then the messages
// and what they refer to must not change.
func (a *Agent) submit(lane wire.Lane, msgs []wire.Message, done func(spool.Receipt, *problem)) *problem {
	st, p := a.gate.enter()
	if p != nil {
		return p
	}
	st.Enqueue(lane, msgs, func(rc spool.Receipt, err error) {
		defer a.gate.leave()
		if err == nil {
			a.accepted(lane, msgs, rc)
		}
		done(rc, problemOf(err))
	})
	return nil
}

// append is submit with the wait.
func (a *Agent) append(lane wire.Lane, msgs []wire.Message) (spool.Receipt, *problem) {
	type result struct {
		rc spool.Receipt
		p  *problem
	}
	ch := make(chan result, 1)
	if p := a.submit(lane, msgs, func(rc spool.Receipt, p *problem) { ch <- result{rc, p} }); p != nil {
		return spool.Receipt{}, p
	}
	// The messages are the spool's until it answers, whatever becomes of the publisher.
	r := <-ch
	return r.rc, r.p
}

// submitLightly is submit for publishers that do not wait. While the spool is in
// trouble they do, and are told.
func (a *Agent) submitLightly(lane wire.Lane, msgs []wire.Message, done func()) *problem {
	if a.trouble() != nil {
		defer done()
		_, p := a.append(lane, msgs)
		return p
	}
	p := a.submit(lane, msgs, func(_ spool.Receipt, p *problem) {
		if p != nil {
			a.metrics.refused(p)
		}
		done()
	})
	if p != nil {
		done()
	}
	return p
}

// accepted counts and shows messages that are durable now.
func (a *Agent) accepted(lane wire.Lane, msgs []wire.Message, rc spool.Receipt) {
	a.metrics.published[lane].Add(rc.Accepted)
	a.taps.show(lane, msgs, rc)
}
