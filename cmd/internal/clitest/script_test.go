package clitest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fieldpost/fieldpost/cmd/internal/conf"
)

// programs is the folder of the programs under test.
var programs string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fieldpost-cli-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs = dir
	build := exec.Command("go", "build", "-ldflags", "-X main.version=v0-test", "-o", dir+string(filepath.Separator),
		"github.com/fieldpost/fieldpost/cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:         "testdata",
		WorkdirRoot: shortRoot(t),
		Setup:       setup,
		Condition: func(name string) (bool, error) {
			if name != "configured" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			_, agent := os.Stat(conf.AgentFile)
			_, hub := os.Stat(conf.HubFile)
			return agent == nil || hub == nil, nil
		},
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":      exits,
			"eventually": eventually,
			"address":    address,
			"expand":     expand,
			"backend":    backend,
		},
	})
}

// shortRoot keeps paths of sockets short enough.
func shortRoot(t *testing.T) string {
	dir, err := os.MkdirTemp("", "fp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func setup(env *testscript.Env) error {
	home := filepath.Join(env.WorkDir, "h")
	env.Setenv("PATH", programs+string(os.PathListSeparator)+env.Getenv("PATH"))
	env.Setenv("HOME", home)
	return os.MkdirAll(home, 0o700)
}

// exits CODE PROGRAM ARGS... runs a program and wants that exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s exits with %d, want %d", args[1], got, want)
	}
}

// eventually PROGRAM ARGS... runs a program until it succeeds; a last argument
// ~TEXT wants that text in its output too.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: eventually PROGRAM ARGS... [~TEXT]")
	}
	text, wanted := strings.CutPrefix(args[len(args)-1], "~")
	if wanted {
		args = args[:len(args)-1]
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		err := ts.Exec(args[0], args[1:]...)
		if err == nil && (!wanted || strings.Contains(ts.ReadFile("stdout"), text)) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%q did not succeed in time: %v", args, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// address NAME sets a variable to a loopback address that is free.
func address(ts *testscript.TestScript, neg bool, args []string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	defer ln.Close()
	ts.Setenv(args[0], ln.Addr().String())
}

// expand FILE replaces $NAME in a file by the variables of the script.
func expand(ts *testscript.TestScript, neg bool, args []string) {
	text := os.Expand(ts.ReadFile(args[0]), ts.Getenv)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}
