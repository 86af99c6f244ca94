package testenv

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/fieldpost/fieldpost/"

// listed is what `go list` says of a package of this module.
type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func (p listed) name() string { return strings.TrimPrefix(p.ImportPath, module) }

// platforms that the build supports; imports differ by build tags.
var platforms = []string{"linux/amd64", "windows/amd64", "darwin/arm64"}

func listPackages(t *testing.T, platform string) []listed {
	t.Helper()
	goos, goarch, _ := strings.Cut(platform, "/")
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", module+"...")
	cmd.Dir = ".."
	cmd.Env = append(cmd.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// edges says which packages of the module a package may import: the first
// pattern that matches its name decides. A trailing /... takes the folder and
// all below it.
var edges = []struct {
	from string
	to   []string
}{
	{"cmd/internal/conf", nil},
	{"cmd/internal/...", []string{"cmd/internal/conf"}},
	{"cmd/fieldpost-agent", []string{"cmd/internal/...", "agent/...", "sync/wire"}},
	{"cmd/fieldpost-hub", []string{"cmd/internal/...", "hub/...", "sync/wire"}},
	{"agent/frame", nil},
	{"agent/client", []string{"agent/frame", "sync/wire"}},
	{"agent/...", []string{"agent/...", "spool/...", "sync/..."}},
	{"hub/client", []string{"hub/admin", "sync/wire"}},
	{"hub/admin", []string{"sync/wire"}},
	{"hub/...", []string{"hub/...", "sync/..."}},
	{"spool/...", []string{"spool/...", "sync/wire"}},
	{"sync/wire", nil},
	{"sync/link", []string{"sync/wire"}},
	{"sync/...", []string{"sync/..."}},
	{"testenv/...", []string{"..."}},
}

func matches(pattern, name string) bool {
	folder, below := strings.CutSuffix(pattern, "...")
	folder = strings.TrimSuffix(folder, "/")
	return name == pattern || below && (folder == "" || name == folder || strings.HasPrefix(name, folder+"/"))
}

func allowed(from, to string) (ok, known bool) {
	for _, e := range edges {
		if matches(e.from, from) {
			return slices.ContainsFunc(e.to, func(pattern string) bool { return matches(pattern, to) }), true
		}
	}
	return false, false
}

func TestImportsFollowTheDataPath(t *testing.T) {
	for _, platform := range platforms {
		for _, p := range listPackages(t, platform) {
			if _, known := allowed(p.name(), ""); !known {
				t.Errorf("%s has no place in the import rules: is it in a folder of the design?", p.name())
			}
			for _, imp := range p.Imports {
				to, ours := strings.CutPrefix(imp, module)
				if ok, _ := allowed(p.name(), to); ours && !ok {
					t.Errorf("%s imports %s (%s): not an edge of the design", p.name(), to, platform)
				}
			}
		}
	}
}

// links says what a package must not carry along, however indirectly.
var links = []struct{ pkg, never, because string }{
	{"cmd/fieldpost-agent", "github.com/nats-io/nats-server/", "an agent is small"},
	{"cmd/fieldpost-agent", module + "hub", "an agent is not a hub"},
	{"cmd/fieldpost-hub", "github.com/dgraph-io/badger/", "the hub keeps everything in JetStream"},
	{"cmd/fieldpost-hub", module + "agent", "a hub is not an agent"},
	{"agent/client", "github.com/nats-io/", "programs on the device link it"},
	{"agent/client", "github.com/dgraph-io/badger/", "programs on the device link it"},
	{"hub/client", "github.com/nats-io/nats-server/", "back ends link it"},
	{"hub/client", "github.com/dgraph-io/badger/", "back ends link it"},
	{"hub/admin", "github.com/nats-io/nats-server/", "the command line links it"},
}

func TestImportsStayLight(t *testing.T) {
	for _, platform := range platforms {
		for _, p := range listPackages(t, platform) {
			for _, l := range links {
				if p.name() != l.pkg {
					continue
				}
				for _, dep := range p.Deps {
					if dep == l.never || strings.HasPrefix(dep, l.never) {
						t.Errorf("%s links %s (%s): %s", l.pkg, dep, platform, l.because)
					}
				}
			}
			if !strings.HasPrefix(p.name(), "testenv") && slices.ContainsFunc(p.Deps, func(d string) bool {
				return d == module+"testenv" || strings.HasPrefix(d, module+"testenv/")
			}) {
				t.Errorf("%s links testenv, which never ships", p.name())
			}
		}
	}
}

func TestImportsHaveTellingNames(t *testing.T) {
	empty := []string{"util", "utils", "common", "types", "helper", "helpers", "misc", "base", "shared", "sync"}
	for _, p := range listPackages(t, platforms[0]) {
		if slices.Contains(empty, path.Base(p.ImportPath)) {
			t.Errorf("%s: the name does not say what the package is for", p.name())
		}
	}
}
