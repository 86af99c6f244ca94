package uplink

import "context"

// attachment is a call of Config.Attached. The zero value is none.
type attachment struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the call has returned
}

// attach lends the connection of the session that has come up. A former call,
// which has been told to end, is waited for first.
func (r *run) attach() {
	if r.cfg.Attached == nil {
		return
	}
	ctx, cancel := context.WithCancel(r.conn.ctx)
	before, conn, done := r.attached.done, r.conn.link, make(chan struct{})
	r.attached = attachment{cancel, done}
	r.wg.Go(func() {
		defer close(done)
		defer cancel()
		if before != nil {
			<-before
		}
		r.cfg.Attached(ctx, conn)
	})
}

// detach tells the present call, if there is one, that its session is over.
func (r *run) detach() {
	if r.attached.cancel != nil {
		r.attached.cancel()
	}
}
