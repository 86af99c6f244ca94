package wire

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestPrefix finds every golden block in a longer piece of bytes, and none
// where one is cut off or changed.
func TestPrefix(t *testing.T) {
	files, err := filepath.Glob("testdata/*.fpb")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, behind := range []string{"", "\x00", "FPB\x01", "\xff\xff\xff\xff\xff\xff\xff\xff"} {
			got, err := Prefix(append(bytes.Clone(want), behind...))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s before %q: %d bytes of %d, %v", file, behind, len(got), len(want), err)
			}
		}
		for n := range want {
			if _, err := Prefix(want[:n:n]); err == nil {
				t.Errorf("%s: %d bytes pass for the %d of the block", file, n, len(want))
			}
			bad := append(bytes.Clone(want), "behind it"...)
			bad[n] ^= 0x10
			if got, err := Prefix(bad); err == nil {
				t.Errorf("%s: byte %d was changed, and %d bytes pass for a block", file, n, len(got))
			}
		}
	}
}

func FuzzPrefix(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.fpb")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := Prefix(data)
		if err != nil {
			return
		}
		if _, err := ParseHeader(b); err != nil {
			t.Fatalf("%d of %d bytes are a block that is not one: %v", len(b), len(data), err)
		}
	})
}
