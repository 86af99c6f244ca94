package conf

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Default places of the configuration.
const (
	AgentFile = "/etc/fieldpost/agent.yaml"
	HubFile   = "/etc/fieldpost/hub.yaml"
)

// Origins says for each key where its value was set: default, file:line:column,
// a variable, or user.
type Origins map[string]string

// Source is where a configuration comes from.
type Source struct {
	File     string   // as asked for by the user; empty: the default place
	Environ  []string // as os.Environ
	Ordinary bool     // not root: what a file that was asked for leaves out is in the user's places
}

// LoadAgent reads agent.yaml.
func LoadAgent(s Source) (*Agent, Origins, error) {
	a := new(Agent)
	origins, err := load(s, layers{AgentFile, AgentExample, "FIELDPOST_AGENT_", agentUser}, a)
	return a, origins, err
}

// LoadHub reads hub.yaml.
func LoadHub(s Source) (*Hub, Origins, error) {
	h := new(Hub)
	origins, err := load(s, layers{HubFile, HubExample, "FIELDPOST_HUB_", hubUser}, h)
	return h, origins, err
}

type layers struct {
	file    string
	example []byte
	prefix  string
	user    func(getenv) (map[string]string, error)
}

func load(s Source, l layers, dst any) (Origins, error) {
	d := &decoder{where: func(*yaml.Node) string { return "default" }, origins: Origins{}}
	d.document(l.example, dst)
	if d.errs != nil {
		return nil, fmt.Errorf("conf: the embedded default is broken: %w", d.errs)
	}
	file, text, err := read(s.File, l.file)
	if err != nil {
		return nil, err
	}
	d.where = func(n *yaml.Node) string { return fmt.Sprintf("%s:%d:%d", file, n.Line, n.Column) }
	d.document(text, dst)
	if file == "" || s.Ordinary && filepath.Clean(file) != l.file {
		err := d.user(s.Environ, l, dst)
		if err != nil && file == "" { // with a file the places of the system remain
			return nil, err
		}
	}
	d.environment(l.prefix, s.Environ, dst)
	if d.errs != nil {
		return nil, d.errs
	}
	return d.origins, nil
}

// user lays the places of the current user over those that are still defaults.
// Mode and group belong to the user's socket, not to one that the file names.
func (d *decoder) user(environ []string, l layers, dst any) error {
	places, err := l.user(lookup(environ))
	if err != nil {
		return err
	}
	named := d.origins["socket.path"] != "default"
	maps.DeleteFunc(places, func(key, _ string) bool {
		return d.origins[key] != "default" || named && strings.HasPrefix(key, "socket.")
	})
	vars := make([]string, 0, len(places))
	for _, key := range slices.Sorted(maps.Keys(places)) {
		vars = append(vars, Variable(l.prefix, key)+"="+places[key])
	}
	d.environment(l.prefix, vars, dst)
	for key := range places {
		d.origins[key] = "user"
	}
	return nil
}

// read returns the file that was asked for, or the one in the default place if there is one.
func read(asked, usual string) (name string, text []byte, err error) {
	name = asked
	if name == "" {
		name = usual
	}
	text, err = os.ReadFile(name)
	switch {
	case err == nil:
		return name, text, nil
	case asked == "" && errors.Is(err, fs.ErrNotExist):
		return "", nil, nil
	case errors.Is(err, fs.ErrNotExist):
		return "", nil, fmt.Errorf("%s: no such file; `config example` prints one to begin with", name)
	case errors.Is(err, fs.ErrPermission):
		return "", nil, fmt.Errorf("%s: not readable for this user; run as another, or name your own file with -c", name)
	}
	return "", nil, fmt.Errorf("reading the configuration: %w", err)
}

type getenv func(string) string

func lookup(environ []string) getenv {
	return func(name string) string {
		for _, kv := range slices.Backward(environ) {
			if v, ok := strings.CutPrefix(kv, name+"="); ok {
				return v
			}
		}
		return ""
	}
}
