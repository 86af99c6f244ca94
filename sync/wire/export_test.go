package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// exported is a file of one flow of two epochs and one of another lane.
func exported(t testing.TB) ([]byte, ExportHead, [][]byte) {
	t.Helper()
	old, young := flow1, Flow{Epoch{9}, Normal}
	head := ExportHead{Device: "press-7", HubID: "hub1", Version: "1.2.3", Created: accepted1, Flows: []FlowHeld{
		{Flow: Flow{flow1.Epoch, Urgent}, Base: 1, First: 1, Last: 2},
		{Flow: old, Base: 5, First: 7, Last: 20},
		{Flow: young, Base: 21, First: 21, Last: 30},
	}}
	at := func(f Flow, base, first uint64, n int) []byte {
		b := block(first, full()[:n]...)
		b.Flow, b.Base = f, base
		return encode(t, Fast, b)
	}
	void, err := AppendVoid(nil, Header{Flow: old, Reason: ReasonPurge, Base: 5, First: 10, Count: 4, Accepted: accepted1})
	if err != nil {
		t.Fatal(err)
	}
	blocks := [][]byte{
		at(Flow{flow1.Epoch, Urgent}, 1, 1, 2), at(old, 5, 6, 3), void, at(old, 5, 15, 6), at(young, 21, 21, 5),
	}
	return export(t, head, blocks), head, blocks
}

func export(t testing.TB, head ExportHead, blocks [][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	x, err := NewExportWriter(&out, head)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		if err := x.Block(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.End(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// imported reads a file to its end.
func imported(r io.Reader) (head ExportHead, blocks [][]byte, totals ExportTotals, err error) {
	x, err := NewExportReader(r)
	if err != nil {
		return head, nil, totals, err
	}
	for {
		_, data, err := x.Next()
		if err == io.EOF {
			return x.Head(), blocks, x.Totals(), nil
		}
		if err != nil {
			return x.Head(), blocks, x.Totals(), err
		}
		blocks = append(blocks, bytes.Clone(data))
	}
}

func TestExportRoundTrip(t *testing.T) {
	data, head, blocks := exported(t)
	gotHead, got, totals, err := imported(iotest.OneByteReader(bytes.NewReader(data)))
	if err != nil || !reflect.DeepEqual(gotHead, head) || !slices.EqualFunc(got, blocks, bytes.Equal) {
		t.Fatalf("%+v, %d blocks, %v", gotHead, len(got), err)
	}
	if want := (ExportTotals{5, 16, 4, totals.Bytes}); totals != want || totals.Bytes == 0 {
		t.Errorf("totals %+v", totals)
	}
	empty := ExportHead{Device: "d"}
	if h, got, _, err := imported(bytes.NewReader(export(t, empty, nil))); err != nil || h.Device != "d" || len(got) > 0 {
		t.Errorf("empty: %v", err)
	}
}

func TestExportEveryCutIsNoticed(t *testing.T) {
	data, _, blocks := exported(t)
	for n := range data {
		_, got, _, err := imported(bytes.NewReader(data[:n]))
		if !errors.Is(err, ErrTruncated) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(data), err)
		}
		if !slices.EqualFunc(got, blocks[:len(got)], bytes.Equal) {
			t.Fatalf("the first %d bytes give other blocks", n)
		}
	}
	if _, _, _, err := imported(bytes.NewReader(append(bytes.Clone(data), 0))); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a byte more: %v", err)
	}
	failing := errors.New("the stick was pulled out")
	if _, _, _, err := imported(io.MultiReader(bytes.NewReader(data[:100]), iotest.ErrReader(failing))); !errors.Is(err, failing) {
		t.Errorf("a reader that fails: %v", err)
	}
}

func TestExportEveryChangeIsNoticed(t *testing.T) {
	data, _, _ := exported(t)
	for n := range data {
		for _, bit := range []byte{0x01, 0x80} {
			bad := bytes.Clone(data)
			bad[n] ^= bit
			if _, _, _, err := imported(bytes.NewReader(bad)); err == nil || errors.Is(err, io.EOF) {
				t.Fatalf("bit %#02x of byte %d: %v", bit, n, err)
			}
		}
	}
}

// TestExportRecordsBelongTogether: each checksum alone is right, but not there.
func TestExportRecordsBelongTogether(t *testing.T) {
	data, head, blocks := exported(t)
	ends := []int{} // of each record
	for n := range blocks {
		var out bytes.Buffer
		x, _ := NewExportWriter(&out, head)
		for _, b := range blocks[:n] {
			x.Block(b)
		}
		ends = append(ends, out.Len())
	}
	cut := slices.Concat(data[:ends[1]], data[ends[2]:]) // without the second block
	if _, _, _, err := imported(bytes.NewReader(cut)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a record is missing: %v", err)
	}
	twice := slices.Concat(data[:ends[2]], data[ends[1]:])
	if _, _, _, err := imported(bytes.NewReader(twice)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a record comes twice: %v", err)
	}
}

func TestExportRefuses(t *testing.T) {
	_, head, blocks := exported(t)
	x, err := NewExportWriter(io.Discard, head)
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		block []byte
		ok    bool
	}{
		{blocks[2], true}, {blocks[1], false}, {blocks[0], false}, {blocks[2], false},
		{[]byte("no block"), false}, {blocks[3], true}, {blocks[4], true}, {blocks[3], false},
	} {
		if err := x.Block(step.block); (err == nil) != step.ok {
			t.Errorf("step %d: %v", i, err)
		}
	}
	for name, change := range map[string]func(*ExportHead){
		"device":  func(h *ExportHead) { h.Device = "a.b" },
		"hub":     func(h *ExportHead) { h.HubID = "a b" },
		"version": func(h *ExportHead) { h.Version = "\x1b" },
		"time":    func(h *ExportHead) { h.Created = -1 },
		"twice":   func(h *ExportHead) { h.Flows = append(h.Flows, h.Flows[0]) },
		"order":   func(h *ExportHead) { h.Flows[0].First, h.Flows[0].Last = 9, 8 },
		"many":    func(h *ExportHead) { h.Flows = make([]FlowHeld, MaxExportFlows+1) },
	} {
		h := head
		h.Flows = slices.Clone(head.Flows)
		change(&h)
		if _, err := NewExportWriter(io.Discard, h); err == nil {
			t.Errorf("%s: written", name)
		}
	}
}

// forgeExport writes records without any check.
func forgeExport(records ...any) []byte {
	var out bytes.Buffer
	x := &ExportWriter{w: &out}
	x.write([]byte(exportMagic))
	for i := 0; i < len(records); i += 2 {
		x.record(byte(records[i].(int)), []byte(records[i+1].(string)))
	}
	return out.Bytes()
}

func TestExportHostile(t *testing.T) {
	head := `{"device":"d","created":1,"flows":[]}`
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"newer":       {[]byte("FPX\x02"), ErrVersion},
		"other":       {[]byte("FPB\x01"), ErrCorrupt},
		"no head":     {forgeExport(3, "\x00\x00\x00\x00"), ErrCorrupt},
		"two heads":   {forgeExport(1, head, 1, head), ErrCorrupt},
		"new record":  {forgeExport(1, head, 9, "x"), ErrVersion},
		"bad json":    {forgeExport(1, "{"), ErrCorrupt},
		"bad device":  {forgeExport(1, `{"device":"../x"}`), ErrCorrupt},
		"big head":    {append([]byte("FPX\x01\x01"), 0x80, 0x80, 0x80, 0x01), ErrLimit},
		"big block":   {append(forgeExport(1, head), 2, 0x80, 0x80, 0x80, 0x80, 0x01), ErrLimit},
		"long length": {append(forgeExport(1, head), 2, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01), ErrCorrupt},
		"fat length":  {append(forgeExport(1, head), 2, 0x81, 0x00), ErrCorrupt},
		"announced":   {append(forgeExport(1, head), 2, 0xff, 0xff, 0x7f), ErrTruncated},
		"counts":      {forgeExport(1, head, 3, "\x01\x00\x00\x00"), ErrCorrupt},
		"no counts":   {forgeExport(1, head, 3, ""), ErrCorrupt},
	} {
		_, _, _, err := imported(bytes.NewReader(c.data))
		var xe *ExportError
		if !errors.Is(err, c.want) || !errors.As(err, &xe) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestExportKeysThatAreNotKnown(t *testing.T) {
	data := forgeExport(1, `{"device":"d","created":1,"flows":[],"colour":"red"}`, 3, "\x00\x00\x00\x00")
	if _, _, _, err := imported(bytes.NewReader(data)); err != nil {
		t.Error(err)
	}
}

// goldenExport is a file of version 1 as it is out there: written once, with -golden.
func goldenExport(t testing.TB) []byte {
	t.Helper()
	const path = "testdata/export.fpx"
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) && *writeGolden {
		data, _, _ = exported(t)
		err = os.WriteFile(path, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestGoldenExport(t *testing.T) {
	data := goldenExport(t)
	head, blocks, totals, err := imported(bytes.NewReader(data))
	_, want, _ := exported(t)
	if err != nil || !reflect.DeepEqual(head, want) || totals.Messages != 16 || totals.Gone != 4 {
		t.Fatalf("%+v, %+v, %v", head, totals, err)
	}
	if again := export(t, head, blocks); !bytes.Equal(again, data) {
		t.Error("written anew, it is another file")
	}
}

func TestExportExample(t *testing.T) {
	lone := block(3, msg("a.temp", "21.5"))
	lone.Base = 1
	void, err := AppendVoid(nil, Header{Flow: flow1, Reason: ReasonTTL, Base: 1, First: 1, Count: 2, Accepted: accepted1})
	if err != nil {
		t.Fatal(err)
	}
	head := ExportHead{Device: "press-7", Created: accepted1, Flows: []FlowHeld{{Flow: flow1, Base: 1, First: 1, Last: 3}}}
	want := export(t, head, [][]byte{void, encode(t, Plain, lone)})
	if got := hexBlocks(t, "EXPORT.md"); len(got) != 1 || !bytes.Equal(got[0], want) {
		t.Errorf("the page does not show\n%s", strings.ReplaceAll(fmt.Sprintf("% x", want), " ", " "))
	}
}

func FuzzExport(f *testing.F) {
	golden := goldenExport(f)
	f.Add(golden)
	f.Add(golden[:len(golden)/2])
	f.Add(forgeExport(1, `{"device":"d","created":1,"flows":[]}`, 3, "\x00\x00\x00\x00"))
	f.Fuzz(checkExport)
}

// FuzzExportRecords gets past the checksums.
func FuzzExportRecords(f *testing.F) {
	_, _, blocks := exported(f)
	head := `{"device":"d","created":1,"flows":[{"epoch":"1122334455667788","lane":"urgent","base":1,"first":1,"last":2}]}`
	f.Add(head, uint8(exportBlock), blocks[0], []byte{1, 2, 0, 120})
	f.Add(head, uint8(exportEnd), []byte{0, 0, 0, 0}, []byte{})
	f.Fuzz(func(t *testing.T, head string, kind uint8, content, end []byte) {
		checkExport(t, forgeExport(exportHead, head, int(kind), string(content), exportEnd, string(end)))
	})
}

func checkExport(t *testing.T, data []byte) {
	before := heapAllocs()
	head, blocks, _, err := imported(bytes.NewReader(data))
	if n := heapAllocs() - before; n > 16<<20+64*uint64(len(data)) {
		t.Fatalf("%d bytes allocated for %d", n, len(data))
	}
	if err != nil {
		if !errors.Is(err, ErrTruncated) {
			known(t, err)
		}
		return
	}
	again, _, _, err := imported(bytes.NewReader(export(t, head, blocks)))
	if err != nil || len(again.Flows) != len(head.Flows) || again.Device != head.Device || again.HubID != head.HubID {
		t.Fatalf("what was read cannot be written: %v", err)
	}
}
