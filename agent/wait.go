package agent

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/fieldpost/fieldpost/spool"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// awaitHub waits until the hub has everything that rc is for, the first copies of
// duplicates included; it says where it is durable in the end, or that it never
// will be at the hub.
func (a *Agent) awaitHub(r *http.Request, rc spool.Receipt, timeout time.Duration) (status int, durable string, p *problem) {
	until := time.Now().Add(timeout)
	for _, c := range needed(rc) {
		switch err := a.waitDelivered(r.Context(), c.Flow, c.Seq, max(time.Until(until), 0)); {
		case errors.Is(err, spool.ErrRemoved):
			return 0, "", problemOf(err)
		case err != nil:
			return http.StatusAccepted, "disk", nil
		}
	}
	return http.StatusOK, "hub", nil
}

// expectHub: what is appended next is waited for.
func (a *Agent) expectHub() {
	if up := a.uplink(); up != nil {
		up.Expect()
	}
}

// needed is what must be delivered for rc: in fifo, its last sequence and with it
// all before, and the first copies of its duplicates.
func needed(rc spool.Receipt) []spool.Copy {
	if rc.Accepted == 0 {
		return rc.Copies
	}
	return append([]spool.Copy{{Flow: rc.Flow, Seq: rc.Last}}, rc.Copies...)
}

// waitDelivered returns nil once the hub has seq; the agent's stop ends the wait.
func (a *Agent) waitDelivered(ctx context.Context, f wire.Flow, seq uint64, timeout time.Duration) error {
	st, p := a.gate.enter()
	if p != nil {
		return p
	}
	defer a.gate.leave()
	if ok, err := st.Delivered(f, seq); ok || err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	go func() {
		select {
		case <-a.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	if up := a.uplink(); up != nil {
		up.Await() // else the hub's answer may take its time
	}
	return st.WaitDelivered(ctx, f, seq)
}

// wait is GET /v1/wait.
func (a *Agent) wait(w http.ResponseWriter, r *http.Request) *problem {
	q := r.URL.Query()
	var f wire.Flow
	var err error
	if f.Epoch, err = wire.ParseEpoch(q.Get("epoch")); err != nil {
		return newProblem(codeBadRequest, "%v; give the one of the receipt", err)
	}
	lane := cmp.Or(q.Get("lane"), wire.Normal.String())
	var p *problem
	if f.Lane, p = parseLane(lane); p != nil {
		return p
	}
	seq, err := strconv.ParseUint(q.Get("seq"), 10, 64)
	if err != nil || seq == 0 {
		return newProblem(codeBadRequest, "seq %q is not a sequence; give the one of the receipt", q.Get("seq"))
	}
	timeout, p := timeoutParam(r)
	if p != nil {
		return p
	}
	switch err := a.waitDelivered(r.Context(), f, seq, timeout); {
	case err == nil:
		return writeJSON(w, http.StatusOK, map[string]string{"state": "delivered"})
	case errors.Is(err, spool.ErrUnknown):
		return newProblem(codeNotFound, "%v/%d was never given out by this agent", f, seq)
	case errors.As(err, &p):
		return p
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return writeJSON(w, http.StatusAccepted, map[string]string{"state": "pending"})
	default:
		return problemOf(err)
	}
}
