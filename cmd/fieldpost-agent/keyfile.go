package main

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/fieldpost/fieldpost/agent"
	"github.com/fieldpost/fieldpost/cmd/internal/conf"
)

const maxKeyFile = 64 << 10

// readKeys adds the keys of spool.key_file, which only the agent itself needs.
func readKeys(file *conf.Agent, cfg *agent.Config, origins conf.Origins) error {
	if file.Spool.KeyFile == "" {
		return nil
	}
	keys, err := loadKeys(file.Spool.KeyFile)
	if err != nil {
		return conf.Place(fmt.Errorf("spool.key_file: %w", err), origins)
	}
	cfg.Spool.Keys = keys
	return nil
}

// loadKeys reads a file of keys, one a line: the first is for what is written
// from now on, or "none"; the others are for what is still held. No error tells
// what a line holds.
func loadKeys(path string) ([][]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := checkPrivate(f); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxKeyFile:
		return nil, fmt.Errorf("%s is longer than a file of keys can be", path)
	}
	keys, err := parseKeys(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return keys, nil
}

func parseKeys(text string) (keys [][]byte, err error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
			continue
		case line == "none" && len(keys) == 0:
			keys = append(keys, nil)
			continue
		case line == "none":
			return nil, fmt.Errorf("line %d: none can only be the first", n)
		}
		key, ok := parseKey(line)
		if !ok {
			return nil, fmt.Errorf("line %d is not a key: 16, 24 or 32 bytes in hex or base64 are wanted; `openssl rand -hex 32` makes one", n)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("there is no key in it; `openssl rand -hex 32` makes one")
	}
	return keys, nil
}

func parseKey(line string) (key []byte, ok bool) {
	if key, err := hex.DecodeString(line); err == nil {
		return key, keyLength(key)
	}
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if key, err := enc.DecodeString(line); err == nil && keyLength(key) {
			return key, true
		}
	}
	return nil, false
}

func keyLength(key []byte) bool { return len(key) == 16 || len(key) == 24 || len(key) == 32 }
