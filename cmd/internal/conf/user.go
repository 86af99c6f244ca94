package conf

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// maxSocketPath is what fits into the address of a Unix socket on every system
// (sun_path: 108 bytes on Linux, 104 on others, with the final NUL).
const maxSocketPath = 103

// agentUser is where an agent keeps its things unless its file names places: an ordinary user
// can write there, and nobody else can publish.
func agentUser(env getenv) (map[string]string, error) {
	data, err := dataHome(env)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"data_dir":     filepath.Join(data, "fieldpost-agent"),
		"socket.path":  userSocket(env, data),
		"socket.mode":  "0600",
		"socket.group": "",
	}, nil
}

func hubUser(env getenv) (map[string]string, error) {
	data, err := dataHome(env)
	if err != nil {
		return nil, err
	}
	return map[string]string{"data_dir": filepath.Join(data, "fieldpost-hub")}, nil
}

// userSocket is in the runtime folder, else beside the data, else, where that
// path is too long for a socket, in a folder of this user alone.
func userSocket(env getenv, data string) string {
	if run := env("XDG_RUNTIME_DIR"); filepath.IsAbs(run) {
		if p := filepath.Join(run, "fieldpost", "agent.sock"); len(p) <= maxSocketPath {
			return p
		}
	}
	if p := filepath.Join(data, "fieldpost-agent", "agent.sock"); len(p) <= maxSocketPath {
		return p
	}
	return filepath.Join(os.TempDir(), "fieldpost-"+strconv.Itoa(os.Getuid()), "agent.sock")
}

func dataHome(env getenv) (string, error) {
	if dir := env("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	if home := env("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "share"), nil
	}
	if dir := env("LocalAppData"); filepath.IsAbs(dir) { // Windows
		return dir, nil
	}
	return "", errors.New("no configuration file, and neither XDG_DATA_HOME nor HOME says where this user keeps data; set one of them or name a file with -c")
}

// Sockets are the places where an agent listens, most specific first.
func Sockets(environ []string) []string {
	env := lookup(environ)
	for _, name := range []string{"FIELDPOST_SOCKET", "FIELDPOST_AGENT_SOCKET_PATH"} {
		if s := env(name); s != "" {
			return []string{s}
		}
	}
	out := []string{"/run/fieldpost/agent.sock"}
	if run := env("XDG_RUNTIME_DIR"); filepath.IsAbs(run) {
		out = append(out, filepath.Join(run, "fieldpost", "agent.sock"))
	}
	if data, err := dataHome(env); err == nil {
		out = append(out, userSocket(env, data))
	}
	return slices.Compact(out) // a runtime folder /run, or one place for two reasons
}
