package wire

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// Golden files are what version 1 looks like on disks out there. They are
// written once, for a new case, and never again: -golden writes absent files only.
var writeGolden = flag.Bool("golden", false, "write golden files that are absent")

// goldens are the blocks that the files in testdata hold.
func goldens() map[string]struct {
	level Level
	block *Block
} {
	sensors := make([]Message, 60)
	for i := range sensors {
		name := []string{"plant.hall1.temp", "plant.hall1.hum", "plant.hall2.temp"}[i%3]
		sensors[i] = msg(name, `{"value":`+strings.Repeat("7", i%5)+`1,"unit":"C"}`)
		sensors[i].Time += int64(100 * i)
	}
	old := block(1<<40, full()...)
	old.Base, old.Lane = 1<<39, Bulk
	type c = struct {
		level Level
		block *Block
	}
	return map[string]c{
		"lone-plain":     {Plain, block(7, msg("sensors.temperature", `{"celsius":21.5}`))},
		"lone-zstd":      {Fast, block(7, msg("sensors.temperature", strings.Repeat(`{"celsius":21.5}`, 9)))},
		"sorts-plain":    {Plain, block(1, full()...)},
		"sorts-zstd":     {Fast, old},
		"sensors-better": {Better, block(501, sensors...)},
		"blanks":         {Plain, block(3, Message{Blank: ReasonTTL, Time: accepted1}, Message{Blank: ReasonPurge, Time: accepted1 + 1, Unsynced: true})},
		"void":           {Plain, &Block{Header: Header{Flow: Flow{flow1.Epoch, Urgent}, Kind: KindVoid, Reason: ReasonDropOldest, Base: 5, First: 300, Count: 70_000, Accepted: accepted1}}},
	}
}

func TestGolden(t *testing.T) {
	for name, g := range goldens() {
		path := filepath.Join("testdata", name+".fpb")
		fresh := encode(t, g.level, g.block)
		stored, err := os.ReadFile(path)
		if os.IsNotExist(err) && *writeGolden {
			if err := os.WriteFile(path, fresh, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := NewDecoder().Decode(stored, true)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := differ(b.Messages, g.block.Messages); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		want, err := NewDecoder().Decode(fresh, true)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(b.Header, want.Header) {
			t.Errorf("%s: header %+v, want %+v", name, b.Header, want.Header)
		}
		// Compressed bytes may change with the library; all others may not.
		_, info, storedBody, _ := parseHeader(stored)
		if info.flags&flagZstd == 0 {
			if !bytes.Equal(stored, fresh) {
				t.Errorf("%s: encoded anew as\n%x, stored as\n%x", name, fresh, stored)
			}
			continue
		}
		if got, want := rawBody(t, storedBody, b.RawSize), rawBodyOf(t, g.block); !bytes.Equal(got, want) {
			t.Errorf("%s: the columns are encoded anew as\n%x, stored as\n%x", name, want, got)
		}
	}
}

func rawBody(t *testing.T, frame []byte, size int) []byte {
	t.Helper()
	d := NewDecoder()
	if err := d.unpack(&Header{RawSize: size}, bodyInfo{flags: flagZstd}, frame); err != nil {
		t.Fatal(err)
	}
	return d.raw
}

// rawBodyOf is the uncompressed body of b.
func rawBodyOf(t *testing.T, b *Block) []byte {
	t.Helper()
	_, _, body, err := parseHeader(encode(t, Plain, b))
	if err != nil {
		t.Fatal(err)
	}
	return body
}
