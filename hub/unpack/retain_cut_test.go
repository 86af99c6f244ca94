package unpack

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestRetentionCutsNoBlock: a crash between its steps leaves a ledger that begins
// with a whole block; else the next to read it would report damage.
func TestRetentionCutsNoBlock(t *testing.T) {
	w := newWorld(t)
	device := func(i int) string { return fmt.Sprint("dev", i) }
	n := 0 // of flows that go on behind the block in pieces
	for ; ; n++ {
		w.block(device(n), 1, wire.Normal, 20)
		if last := w.info(store.Blocks).Last; n > 0 && w.blockStart(last) < last {
			break
		}
	}
	begins := w.blockStart(w.info(store.Blocks).Last)
	for i := range n {
		w.block(device(i), 1, wire.Normal, 20)
	}
	cfg := w.config()
	_, stop := w.start(cfg)
	w.caughtUp()
	w.wait("checkpoints", func() bool { return w.disposableTo(cfg) == w.info(store.Blocks).Last })
	stop()

	cfg.Now = func() time.Time { return time.Now().Add(1000 * time.Hour) }
	cfg.Fault = func(p string) error {
		if p == "retain:mark" {
			return errInjected
		}
		return nil
	}
	u, err := New(w.ctx(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.retainOnce(w.ctx()); !errors.Is(err, errInjected) {
		t.Fatalf("no mark was tried: %v", err)
	}
	if first := w.info(store.Blocks).First; first != begins {
		t.Errorf("the ledger begins at %d, not with the block at %d", first, begins)
	}
}
