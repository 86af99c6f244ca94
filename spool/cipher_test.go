package spool

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestDecryptTable: with its index or without, as far as it is intact.
func TestDecryptTable(t *testing.T) {
	cfg := small(t, t.TempDir())
	cfg.Keys = [][]byte{testKey(7)}
	s := open(t, cfg)
	for i := range 100 {
		appendOK(t, s, wire.Normal, secretMessage(5*i), secretMessage(5*i+1))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := globOne(t, cfg.Dir, "000001.sst")
	secret, err := newKeyring(cfg.Keys).of(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	blocks := func(change func([]byte) []byte) int {
		data := change(bytes.Clone(sealed))
		decryptTable(data, secret)
		return bytes.Count(data, []byte(subjectMark))
	}
	if n := blocks(func(d []byte) []byte { return d }); n != 100 {
		t.Errorf("%d blocks of 100", n)
	}
	if n := blocks(func(d []byte) []byte { return d[:len(d)-1] }); n != 100 {
		t.Errorf("without an index: %d blocks of 100", n)
	}
	if n := blocks(func(d []byte) []byte { return d[:len(d)/2] }); n < 30 || n > 60 {
		t.Errorf("of half a table: %d blocks", n)
	}
	if n := blocks(func(d []byte) []byte { clear(d[len(d)/2:]); return d }); n < 30 || n > 60 {
		t.Errorf("of half a table, zeros behind: %d blocks", n)
	}
	for range 300 { // whatever it is, it neither panics nor writes behind the end
		blocks(func(d []byte) []byte {
			for range 3 {
				d[len(d)-1-rand.IntN(60)] = byte(rand.Uint32())
			}
			return d[rand.IntN(len(d)):]
		})
	}
}

// TestRegistryParse: what the segment needs is found, and nothing in garbage.
func TestRegistryParse(t *testing.T) {
	key, dataKey := testKey(1), testKey(2)
	reg, err := newRegistry(key, dataKey)
	if err != nil {
		t.Fatal(err)
	}
	if keys, ok := parseRegistry(reg, key); !ok || !bytes.Equal(keys[dataKeyID], dataKey) {
		t.Fatalf("%v %v", keys, ok)
	}
	if bytes.Contains(reg, dataKey) {
		t.Error("the data key is in the clear")
	}
	for _, other := range [][]byte{nil, testKey(3), key[:16]} {
		if _, ok := parseRegistry(reg, other); ok {
			t.Error("another key fits")
		}
	}
	for n := range len(reg) {
		parseRegistry(reg[:n], key)
		bad := bytes.Clone(reg)
		bad[n] ^= 0x40
		if keys, ok := parseRegistry(bad, key); ok && n >= 28 && bytes.Equal(keys[dataKeyID], dataKey) {
			t.Errorf("byte %d flipped, unnoticed", n)
		}
	}
}
