package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Environment of the process that is killed.
const killedURL, killedDir = "FIELDPOST_TEST_DESIRED_URL", "FIELDPOST_TEST_DESIRED_DIR"

// emulator is the environment's name for the command that runs this program, with
// its flags, where the kernel cannot.
const emulator = "FIELDPOST_TEST_EMULATOR"

func TestMain(m *testing.M) {
	if os.Getenv(killedURL) != "" {
		killedProcess()
	}
	os.Exit(m.Run())
}

// killedProcess is the agent that TestDesiredSurvivesKill kills.
func killedProcess() {
	cfg := Config{Device: "dev1", DataDir: os.Getenv(killedDir), Hub: HubConfig{URLs: []string{os.Getenv(killedURL)}}}
	cfg.Socket.Path = filepath.Join(cfg.DataDir, "a.sock")
	withOverlay(&cfg)
	a, err := New(cfg)
	if err == nil {
		err = a.Run(background)
	}
	fmt.Fprintln(os.Stderr, "the agent that is to be killed ends by itself:", err)
	os.Exit(1)
}

// startKilled starts an agent in a process of its own; kill is kill -9.
func startKilled(t *testing.T, h *desiredHub, dir string) (kill func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	argv := append(strings.Fields(os.Getenv(emulator)), self)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), killedURL+"="+h.url, killedDir+"="+dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dead := false
	kill = func() {
		if !dead {
			dead = true
			cmd.Process.Kill()
			cmd.Wait() // killed: the error says so
		}
	}
	t.Cleanup(kill)
	return kill
}

// Killed after it has reported, in the middle of a trial, and again and again.
func TestDesiredSurvivesKill(t *testing.T) {
	dir, err := os.MkdirTemp("", "fp") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := newDesiredHub(t)
	opened := func(class string, from int) func() bool {
		return func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.opens) > from && h.opens[len(h.opens)-1] == class
		}
	}
	mute := func(class string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.mute, h.reports = class, nil
	}

	kill := startKilled(t, h, dir)
	h.set("v1", `{"agent":{"link":{"class":"metered"}}}`)
	h.becomes("v1", wire.DesiredApplied)
	kill()
	mute("")
	from := h.numOpens()
	kill = startKilled(t, h, dir)
	h.becomes("v1", wire.DesiredApplied)
	h.mu.Lock()
	if first := h.opens[from]; first != classMetered {
		t.Errorf("after kill -9 the first session is %s", first)
	}
	h.mu.Unlock()

	mute(classUnmetered)
	h.set("v2", `{}`) // back to the configuration, with which no hub answers
	eventually(t, "v2 is tried", opened(classUnmetered, from))
	kill()
	mute("") // and now one does
	kill = startKilled(t, h, dir)
	h.becomes("v2", wire.DesiredApplied)

	from = h.numOpens()
	mute(classMetered)
	h.set("v3", `{"agent":{"link":{"class":"metered"}}}`)
	eventually(t, "v3 is tried", opened(classMetered, from))
	for range 3 {
		kill()
		from = h.numOpens()
		kill = startKilled(t, h, dir)
		eventually(t, "v3 is tried again", opened(classMetered, from))
	}
	kill()
	startKilled(t, h, dir)
	if r := h.becomes("v3", wire.DesiredRefused); !strings.Contains(r.Reason, "started 4 times") {
		t.Error(r.Reason)
	}
}
