package uplink

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldpost/fieldpost/sync/link"
)

// Whoever is attached has the connection of each session in turn, is told when
// it is down, and is waited for.
func TestAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var mu sync.Mutex
		var conns []link.Conn
		running, together := 0, 0
		b.u.cfg.Attached = func(ctx context.Context, c link.Conn) {
			mu.Lock()
			conns = append(conns, c)
			running++
			together = max(together, running)
			mu.Unlock()
			<-ctx.Done()
			time.Sleep(3 * time.Second) // a request that is under way
			mu.Lock()
			running--
			mu.Unlock()
		}
		attached := func(n int) func() bool {
			return func() bool { mu.Lock(); defer mu.Unlock(); return len(conns) == n && running == 1 }
		}
		b.run()
		b.within(time.Minute, "the first session", attached(1))
		b.net.last().Close()
		b.within(time.Minute, "the second session", attached(2))
		b.stop()
		if running != 0 || together != 1 {
			t.Errorf("running %d, together %d", running, together)
		}
		if len(conns) != 2 || conns[0] == conns[1] || conns[1] != link.Conn(b.net.last()) {
			t.Errorf("connections %v", conns)
		}
	})
}
