package spool

import (
	"bytes"
	"testing"
)

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
