package hub

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestOnlyTheHubWritesItsStreams: a message of somebody else in a route's
// stream would be counted as a projected one, and one in the ledger would stop a
// device, so a connection without credentials may write neither.
func TestOnlyTheHubWritesItsStreams(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	refused := make(chan error, 16)
	nc, err := nats.Connect("nats://"+r.Addrs().NATS, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	subjects := []string{"edge.press-7.fake", "fp.blocks.press-7.0011223344556677.normal", "dead.gap.press-7",
		"$KV.fieldpost_hub.hub_id", "$KV.fieldpost_devices.press-7", "fp.wake.press-7", "fp.cmd.press-7", "$KV.fieldpost_commands.command.press-7.c1", "$KV.fieldpost_desired.doc.device.press-7",
		"fp.audit.dead_purge", "retry.worker", "$KV.fieldpost_dead.EDGE.1.worker.1", "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.EDGE.worker"}
	for _, s := range subjects {
		if err := nc.Publish(s, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-refused:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s: %v", s, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s was not refused", s)
		}
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"EDGE", "BLOCKS", "DEAD", "RETRY", "ADVISORIES", "COMMANDS"} { // a guest may still read
		st, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if n := st.CachedInfo().State.LastSeq; n != 0 {
			t.Errorf("%s holds %d messages", name, n)
		}
	}
}
