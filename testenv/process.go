package testenv

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TB is the part of testing.TB that a world needs.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
	Failed() bool
	TempDir() string
}

var _ TB = (testing.TB)(nil)

// Binaries are the two programs and a NATS server, built once per test process.
type Binaries struct{ Agent, Hub, Node string }

// builtIn is the folder that built has made; empty if it was not called.
var builtIn string

var built = sync.OnceValues(func() (Binaries, error) {
	dir, err := os.MkdirTemp("", "fieldpost-bin-")
	if err != nil {
		return Binaries{}, err
	}
	builtIn = dir
	cmd := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "github.com/fieldpost/fieldpost/cmd/...", "github.com/fieldpost/fieldpost/testenv/natsnode")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return Binaries{}, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return Binaries{filepath.Join(dir, "fieldpost-agent"), filepath.Join(dir, "fieldpost-hub"), filepath.Join(dir, "natsnode")}, nil
})

// prebuilt takes the place of what Build would make.
var prebuilt Binaries

// UseBinaries makes every world run these; call it before the first.
func UseBinaries(b Binaries) { prebuilt = b }

// Build returns the programs of this tree; Node is empty after UseBinaries.
func Build(tb TB) Binaries {
	tb.Helper()
	if prebuilt != (Binaries{}) {
		return prebuilt
	}
	b, err := built()
	if err != nil {
		tb.Fatalf("build: %v", err)
	}
	return b
}

// RemoveBuilt deletes what Build made; for TestMain.
func RemoveBuilt() {
	if builtIn != "" {
		os.RemoveAll(builtIn)
	}
}

// Process is a program under test. Its output goes to a file whose end is
// logged when the test fails.
type Process struct {
	tb   TB
	name string
	args []string
	log  string
	Env  []string // besides the environment of the test

	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has been waited for
}

// NewProcess prepares a program; Start runs it, any number of times one after another.
func NewProcess(tb TB, name, log string, args ...string) *Process {
	p := &Process{tb: tb, name: name, args: args, log: log}
	tb.Cleanup(func() {
		ended := p.ended()
		p.Kill()
		if tb.Failed() {
			tb.Logf("last output of %s (%s):\n%s", name, ended, tail(log, 6000))
		}
	})
	return p
}

// Start runs the program.
func (p *Process) Start() {
	p.tb.Helper()
	f, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.tb.Fatalf("%s: %v", p.name, err)
	}
	defer f.Close()
	p.cmd = exec.Command(p.args[0], p.args[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = f, f
	p.cmd.Env = append(os.Environ(), p.Env...)
	p.cmd.SysProcAttr = dieWithParent()
	if err := p.cmd.Start(); err != nil {
		p.tb.Fatalf("%s: %v", p.name, err)
	}
	cmd, done := p.cmd, make(chan struct{})
	p.done = done
	go func() { cmd.Wait(); close(done) }()
}

// PID is the running program's, 0 if none runs.
func (p *Process) PID() int {
	if !p.Running() {
		return 0
	}
	return p.cmd.Process.Pid
}

// Running reports whether the program has not ended.
func (p *Process) Running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// ended says how the program came to its end, with its last words if these are
// not of its log.
func (p *Process) ended() string {
	switch {
	case p.cmd == nil:
		return "never started"
	case p.Running():
		return "running"
	}
	words := tail(p.log, 64<<10)
	for _, mark := range []string{"panic: ", "fatal error: ", "SIGBUS"} {
		if at := bytes.Index(words, []byte(mark)); at >= 0 {
			return fmt.Sprintf("%v: %.500s", p.cmd.ProcessState, words[at:])
		}
	}
	lines := bytes.Split(bytes.TrimSpace(words), []byte("\n"))
	return fmt.Sprintf("%v: %.500s", p.cmd.ProcessState, lines[len(lines)-1])
}

// Kill ends the program as kill -9 does, and returns when it is gone.
func (p *Process) Kill() {
	if p.Running() {
		p.cmd.Process.Kill()
		<-p.done
	}
}

// Stop asks the program to end and returns its exit code; past the limit the test fails.
func (p *Process) Stop(limit time.Duration) int {
	p.tb.Helper()
	if p.Running() {
		p.cmd.Process.Signal(syscall.SIGTERM)
	}
	return p.Wait(limit)
}

// Wait returns the exit code once the program has ended.
func (p *Process) Wait(limit time.Duration) int {
	p.tb.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.cmd.Process.Signal(syscall.SIGQUIT) // leaves the goroutines in the log
		<-p.done
		p.tb.Fatalf("%s did not end within %v", p.name, limit)
	}
	return p.cmd.ProcessState.ExitCode()
}

// Signal sends sig to the running program.
func (p *Process) Signal(sig os.Signal) {
	if p.Running() {
		p.cmd.Process.Signal(sig)
	}
}

func tail(path string, n int64) []byte {
	b, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	return b[max(0, int64(len(b))-n):]
}

// Eventually waits for cond; past the limit the test fails with what the last call said.
func Eventually(tb TB, limit time.Duration, what string, cond func() error) {
	tb.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := cond()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("%s: not within %v: %v", what, limit, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
