package testenv

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub"
	"github.com/fieldpost/fieldpost/hub/ingest"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/hub/unpack"
)

// The test binary itself serves as a hub that kills itself at a labelled step:
// these are the variables that tell it so.
const (
	envHubDir  = "FIELDPOST_TEST_HUB_DIR"
	envHubNATS = "FIELDPOST_TEST_HUB_NATS"
	envHubHTTP = "FIELDPOST_TEST_HUB_HTTP"
	envHubDie  = "FIELDPOST_TEST_HUB_DIE" // "<point>#<occurrence>"
)

// runDoomedHub is main of the re-executed test binary.
func runDoomedHub() int {
	point, nth, _ := strings.Cut(os.Getenv(envHubDie), "#")
	n, err := strconv.ParseInt(nth, 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	var seen atomic.Int64
	cfg := hub.Config{DataDir: os.Getenv(envHubDir), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	cfg.NATS.Listen, cfg.HTTP.Listen = os.Getenv(envHubNATS), os.Getenv(envHubHTTP)
	cfg.Fault = func(p string) error {
		if p == point && seen.Add(1) == n {
			if me, err := os.FindProcess(os.Getpid()); err == nil {
				me.Kill()
			}
			select {} // nothing after the step happens
		}
		return nil
	}
	h, err := hub.New(cfg)
	if err == nil {
		err = h.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// TestHubKilledAtEachStep kills the whole hub at every labelled step of ingest,
// of the atomic batch and of unpacking that this load comes by: at the first
// occurrence or a later one.
func TestHubKilledAtEachStep(t *testing.T) {
	short(t)
	s, rnd := seed(t)
	w := NewWorld(t, "")
	for i := range 2 {
		w.StartLoad(w.AddAgent(fmt.Sprintf("press-%d", i), ""), 4*time.Millisecond, s+uint64(i))
	}
	w.Hub.Stop(30 * time.Second)
	for _, point := range append(append(unpack.Points(), store.Points()...), ingest.Points()...) {
		nth := 1 + rnd.IntN(4)
		switch kind, _, _ := strings.Cut(point, ":"); {
		case point == "lease:acquire" || point == "unpack:resume" || point == "open:reply" || point == "read":
			nth = 1 // once a start, or once a device
		case kind == "gap" || kind == "retain" || kind == "backfill" || point == "unpack:poison" || point == "lease:release" || point == "end:send":
			continue // tested where voids, old blocks, back-fills, poison and a stop are at hand
		}
		doomed := NewProcess(t, point, filepath.Join(w.Dir, "doomed.log"), os.Args[0])
		doomed.Env = []string{envHubDir + "=" + w.HubDir, envHubNATS + "=" + w.NATS, envHubHTTP + "=" + w.HTTP,
			envHubDie + "=" + fmt.Sprintf("%s#%d", point, nth)}
		doomed.Start()
		Eventually(t, 60*time.Second, "death at "+point, func() error {
			if doomed.Running() {
				return fmt.Errorf("alive")
			}
			return nil
		})
	}
	w.StartHub()
	w.stopLoads()
	report(t, w)
	for _, a := range w.Agents { // a hub that forgets must not blame the devices
		if n := w.copies(t, a.Device); n > 0 {
			t.Errorf("%s is reported as a copy %d times", a.Device, n)
		}
	}
}
