package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// forgeFields wraps header fields and a body with matching length and header
// checksum: what a hostile device can do.
func forgeFields(fields, body []byte) []byte {
	out := append([]byte(magic), binary.AppendUvarint(nil, uint64(len(fields)))...)
	out = append(out, fields...)
	out = binary.LittleEndian.AppendUint32(out, crc32.Checksum(out, castagnoli))
	return append(out, body...)
}

// forge wraps a stored body in a valid header of count messages.
func forge(flags byte, count uint64, rawSize int, subjects []string, body []byte) []byte {
	h := Header{Flow: flow1, Kind: KindMessages, Base: 1, First: 1, Count: count, Accepted: accepted1, RawSize: rawSize, Subjects: subjects}
	return append(appendHeader(nil, &h, bodyInfo{flags, crc32.Checksum(body, castagnoli)}), body...)
}

// samples are blocks of each sort, small enough to try every bit.
func samples(t testing.TB) map[string][]byte {
	void, err := AppendVoid(nil, Header{Flow: flow1, Reason: ReasonPurge, Base: 1, First: 3, Count: 70_000, Accepted: accepted1})
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		"void":   void,
		"lone":   encode(t, Fast, block(9, msg("a.b", `{"v":1}`))),
		"stored": encode(t, Plain, block(9, full()[:4]...)),
		"zstd":   encode(t, Fast, block(9, full()...)),
	}
}

func TestEveryBitFlipIsDetected(t *testing.T) {
	d := NewDecoder()
	for name, data := range samples(t) {
		if _, err := d.Decode(data, false); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for bit := range 8 * len(data) {
			data[bit/8] ^= 1 << (bit % 8)
			if _, err := ParseHeader(data); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
				t.Errorf("%s: bit %d: ParseHeader: %v", name, bit, err)
			}
			if _, err := d.Decode(data, false); err == nil {
				t.Errorf("%s: bit %d: decoded", name, bit)
			}
			data[bit/8] ^= 1 << (bit % 8)
		}
	}
}

func TestEveryTruncationIsDetected(t *testing.T) {
	d := NewDecoder()
	for name, data := range samples(t) {
		for n := range len(data) {
			if _, err := ParseHeader(data[:n]); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: the first %d of %d bytes: %v", name, n, len(data), err)
			}
			if _, err := d.Decode(data[:n], false); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: the first %d of %d bytes decode: %v", name, n, len(data), err)
			}
		}
		for _, more := range [][]byte{{0}, data} {
			if _, err := ParseHeader(slices.Concat(data, more)); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: %d bytes more: %v", name, len(more), err)
			}
		}
	}
}

func TestFromTheFuture(t *testing.T) {
	data := samples(t)["lone"]
	newer := bytes.Clone(data)
	newer[3] = Version + 1
	void := samples(t)["void"]
	fields := func(data []byte) []byte { return bytes.Clone(data[5 : len(magic)+1+int(data[4])]) }
	patched := func(data []byte, at int, v byte) []byte {
		f := fields(data)
		f[at] = v
		return forgeFields(f, data[len(magic)+1+int(data[4])+crcSize:])
	}
	for name, data := range map[string][]byte{
		"version":     newer,
		"flag":        patched(data, 0, 0x80),
		"kind":        patched(data, 1, 3|byte(Normal)<<4),
		"void reason": patched(void, len(fields(void))-1, byte(numReasons)),
		"column":      forge(0, 1, 4, []string{"a"}, []byte{0x80, 1, 'x', 'x'}),
		"blank":       forge(0, 1, 2, nil, []byte{colFlags, byte(numReasons) << reasonShift}),
	} {
		_, err := NewDecoder().Decode(data, false)
		var fe *FormatError
		if !errors.Is(err, ErrVersion) || errors.Is(err, ErrCorrupt) || !errors.As(err, &fe) {
			t.Errorf("%s: %v, want ErrVersion", name, err)
		}
	}
}

// TestHeaderRules forges headers that no encoder writes.
func TestHeaderRules(t *testing.T) {
	uv := func(v ...uint64) (out []byte) {
		for _, x := range v {
			out = binary.AppendUvarint(out, x)
		}
		return out
	}
	start := func(kind Kind, lane Lane, epoch Epoch) []byte {
		return append([]byte{0, byte(kind) | byte(lane)<<4}, epoch[:]...)
	}
	good := start(KindMessages, Normal, flow1.Epoch)
	tail := append(uv(2), 0, 0, 0, 0) // raw size, checksum; the dictionary follows
	entry := func(share, add uint64, s string) []byte { return append(uv(share, add), s...) }
	for name, c := range map[string]struct {
		fields []byte
		want   error
	}{
		"zero epoch":      {slices.Concat(start(KindMessages, Normal, Epoch{}), uv(1, 0, 1, 0), tail, uv(0)), ErrCorrupt},
		"lane 3":          {slices.Concat(start(KindMessages, 3, flow1.Epoch), uv(1, 0, 1, 0), tail, uv(0)), ErrCorrupt},
		"base 0":          {slices.Concat(good, uv(0, 1, 1, 0), tail, uv(0)), ErrCorrupt},
		"first wraps":     {slices.Concat(good, uv(2, 1<<64-1, 1, 0), tail, uv(0)), ErrCorrupt},
		"last wraps":      {slices.Concat(good, uv(MaxSeq, 0, 2, 0), tail, uv(0)), ErrCorrupt},
		"count 0":         {slices.Concat(good, uv(1, 0, 0, 0), tail, uv(0)), ErrCorrupt},
		"count":           {slices.Concat(good, uv(1, 0, MaxCount+1, 0), tail, uv(0)), ErrLimit},
		"accepted":        {slices.Concat(good, uv(1, 0, 1, 1<<63), tail, uv(0)), ErrCorrupt},
		"raw size":        {slices.Concat(good, uv(1, 0, 1, 0), uv(MaxRaw+1), tail[1:], uv(0)), ErrLimit},
		"long number":     {slices.Concat(good, []byte{0x81, 0}, uv(0, 1, 0), tail, uv(0)), ErrCorrupt},
		"endless number":  {slices.Concat(good, bytes.Repeat([]byte{0xff}, 11)), ErrCorrupt},
		"more subjects":   {slices.Concat(good, uv(1, 0, 1, 0), tail, uv(2), entry(0, 1, "a"), entry(0, 1, "b")), ErrLimit},
		"bad subject":     {slices.Concat(good, uv(1, 0, 1, 0), tail, uv(1), entry(0, 3, "a.*")), ErrCorrupt},
		"empty subject":   {slices.Concat(good, uv(1, 0, 1, 0), tail, uv(1), entry(0, 0, "")), ErrCorrupt},
		"long subject":    {slices.Concat(good, uv(1, 0, 1, 0), tail, uv(1), entry(0, 256, strings.Repeat("a", 256))), ErrCorrupt},
		"grown subject":   {slices.Concat(good, uv(1, 0, 2, 0), tail, uv(2), entry(0, 200, strings.Repeat("a", 200)), entry(200, 100, strings.Repeat("a", 100))), ErrCorrupt},
		"shares too much": {slices.Concat(good, uv(1, 0, 2, 0), tail, uv(2), entry(0, 1, "a"), entry(2, 1, "b")), ErrCorrupt},
		"not sorted":      {slices.Concat(good, uv(1, 0, 2, 0), tail, uv(2), entry(0, 1, "b"), entry(0, 1, "a")), ErrCorrupt},
		"twice":           {slices.Concat(good, uv(1, 0, 2, 0), tail, uv(2), entry(0, 1, "b"), entry(1, 0, "")), ErrCorrupt},
		"cut off":         {slices.Concat(good, uv(1, 0, 2, 0), tail, uv(2), entry(0, 1, "b"), uv(0)), ErrCorrupt},
		"bytes after":     {slices.Concat(good, uv(1, 0, 1, 0), tail, uv(0), uv(0)), ErrCorrupt},
		"void with flags": {append([]byte{flagZstd, byte(KindVoid)}, slices.Concat(flow1.Epoch[:], uv(1, 0, 1, 0), uv(1))...), ErrCorrupt},
	} {
		_, err := ParseHeader(forgeFields(c.fields, nil))
		var fe *FormatError
		if !errors.Is(err, c.want) || !errors.As(err, &fe) || fe.Part != "header" || strings.Contains(fe.Detail, "checksum") {
			t.Errorf("%s: %v, want %v of the header", name, err, c.want)
		}
	}
}

// TestBodyRules forges bodies that no encoder writes.
func TestBodyRules(t *testing.T) {
	ab := []string{"a", "b"}
	for name, c := range map[string]struct {
		count    uint64
		subjects []string
		body     string
		want     error
	}{
		"empty":                {1, ab[:1], "", ErrCorrupt},
		"no length":            {1, ab[:1], "\x00", ErrCorrupt},
		"payload cut off":      {1, ab[:1], "\x00\x05abcd", ErrCorrupt},
		"bytes after":          {1, ab[:1], "\x00\x01xx", ErrCorrupt},
		"no subject":           {1, nil, "\x00\x00", ErrCorrupt},
		"subject unused":       {2, ab, "\x08\x00\x00\x00", ErrCorrupt},
		"subject out of range": {2, ab, "\x08\x00\x02\x00", ErrCorrupt},
		"subjects missing":     {2, ab, "\x00\x00", ErrCorrupt},
		"subjects for one":     {1, ab[:1], "\x08\x00\x00", ErrCorrupt},
		"flags of default":     {1, ab[:1], "\x01\x00\x00", ErrCorrupt},
		"blank with subject":   {1, ab[:1], "\x01\x02", ErrCorrupt},
		"blank with payload":   {1, nil, "\x41\x02\x00", ErrCorrupt},
		"times 0 wide":         {1, ab[:1], "\x02\x00\x00", ErrCorrupt},
		"times 9 wide":         {1, ab[:1], "\x02\x09\x01\x01\x01\x01\x01\x01\x01\x01\x01\x00", ErrCorrupt},
		"times too wide":       {1, ab[:1], "\x02\x02\x01\x00\x00", ErrCorrupt},
		"times of default":     {1, ab[:1], "\x02\x01\x00\x00", ErrCorrupt},
		"time wraps":           {1, ab[:1], "\x02\x08\xff\xff\xff\xff\xff\xff\xff\xff\x00", ErrCorrupt},
		"year 10000":           {1, ab[:1], "\x02\x07\x00\x00\x00\x00\x00\x00\x02\x00", ErrCorrupt},
		"ttl of default":       {1, ab[:1], "\x04\x00\x00", ErrCorrupt},
		"ttl too long":         {1, ab[:1], "\x04\xff\xff\xff\xff\xff\xff\x7f\x00", ErrCorrupt},
		"no header set":        {1, ab[:1], "\x10\x00\x00\x00\x00\x00\x00", ErrCorrupt},
		"too many sets":        {1, ab[:1], "\x10\x02\x01\x01a\x00\x01\x01b\x00\x01\x00", ErrLimit},
		"empty set":            {1, ab[:1], "\x10\x01\x00\x01\x00\x00\x00", ErrCorrupt},
		"set out of range":     {1, ab[:1], "\x10\x01\x01\x01a\x00\x02\x00", ErrLimit},
		"set unused":           {1, ab[:1], "\x10\x01\x01\x01a\x00\x00\x00", ErrCorrupt},
		"sets out of order":    {2, ab[:1], "\x10\x02\x01\x01a\x00\x01\x01b\x00\x02\x01\x00", ErrCorrupt},
		"reserved header":      {1, ab[:1], "\x10\x01\x01\x06nats-x\x011\x01\x00", ErrCorrupt},
		"reserved header 2":    {1, ab[:1], "\x10\x01\x01\x0dFieldpost-Seq\x011\x01\x00", ErrCorrupt},
		"header line break":    {1, ab[:1], "\x10\x01\x01\x01a\x02x\n\x01\x00", ErrCorrupt},
		"header cut off":       {1, ab[:1], "\x10\x01\x01\x01a\x7fx\x01\x00", ErrCorrupt},
		"ids of default":       {1, ab[:1], "\x20\x00\x00\x00", ErrCorrupt},
		"id shares too much":   {1, ab[:1], "\x20\x01\x01x\x00", ErrCorrupt},
		"id too long":          {1, ab[:1], "\x20\x00\x80\x02x\x00", ErrLimit},
		"id cut off":           {1, ab[:1], "\x20\x00\x05x\x00", ErrCorrupt},
		"id control character": {1, ab[:1], "\x20\x00\x01\x07\x00", ErrCorrupt},
		"lengths of default":   {2, ab[:1], "\x40\x02\x00xx", ErrCorrupt},
		"negative length":      {2, ab[:1], "\x40\x02\x03x", ErrCorrupt},
		"length beyond all":    {2, ab[:1], "\x40\x02\x80\x80\x80\x80\x10x", ErrCorrupt},
		"too few lengths":      {9, ab[:1], "\x40\x02\x01x", ErrCorrupt},
	} {
		data := forge(0, c.count, len(c.body), c.subjects, []byte(c.body))
		if _, err := ParseHeader(data); err != nil {
			t.Errorf("%s: the header is refused: %v", name, err)
		}
		_, err := NewDecoder().Decode(data, false)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), "body") {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for _, header := range []string{"nats-x", "Fieldpost-Seq"} {
		body := "\x10\x01\x01" + string(rune(len(header))) + header + "\x011\x01\x00"
		if _, err := NewDecoder().Decode(forge(0, 1, len(body), ab[:1], []byte(body)), false); err == nil || !strings.Contains(err.Error(), header) {
			t.Errorf("%v does not name %s", err, header)
		}
	}
}

// TestFrames feeds zstd frames that the library would accept, or nearly.
func TestFrames(t *testing.T) {
	raw := append([]byte("\x00\xac\x02"), bytes.Repeat([]byte("text"), 75)...) // one message of 300 bytes
	frame := func(raw []byte, opts ...zstd.EOption) []byte {
		zw, err := zstd.NewWriter(nil, append([]zstd.EOption{zstd.WithSingleSegment(true)}, opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		defer zw.Close()
		return zw.EncodeAll(raw, nil)
	}
	good := frame(raw)
	empty := frame(nil, zstd.WithZeroFrames(true))
	skippable := []byte{0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 0}
	broken := bytes.Clone(good)
	broken[len(broken)-1] ^= 1
	runs := append(bytes.Clone(good[:7]), 0x03, 0x01, 0x00, 'x') // run-length block of 32 bytes only
	for name, c := range map[string]struct {
		body []byte
		size int
		ok   bool
	}{
		"good":                 {good, len(raw), true},
		"empty":                {nil, 0, false},
		"empty frame":          {empty, 0, false},
		"not a frame":          {raw, len(raw), false},
		"twice":                {slices.Concat(good, good), 2 * len(raw), false},
		"then an empty frame":  {slices.Concat(good, empty), len(raw), false},
		"after an empty frame": {slices.Concat(empty, good), len(raw), false},
		"then skippable":       {slices.Concat(good, skippable), len(raw), false},
		"after skippable":      {slices.Concat(skippable, good), len(raw), false},
		"without checksum":     {frame(raw, zstd.WithEncoderCRC(false)), len(raw), false},
		"wrong checksum":       {broken, len(raw), false},
		"announced smaller":    {good, len(raw) - 1, false},
		"announced larger":     {good, len(raw) + 1, false},
		"cut off":              {good[:len(good)-5], len(raw), false},
		"short content":        {runs, len(raw), false},
	} {
		_, err := NewDecoder().Decode(forge(flagZstd, 1, c.size, []string{"a"}, c.body), false)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// allocated measures what f allocates, garbage included.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestBombs: a few bytes cannot make a decoder allocate more than its limits.
func TestBombs(t *testing.T) {
	zw, _ := zstd.NewWriter(nil, zstd.WithSingleSegment(true))
	defer zw.Close()
	pack := func(raw []byte) []byte { return zw.EncodeAll(raw, nil) }
	one := []string{"a"}
	huge := pack(make([]byte, 64<<20))
	sets := append([]byte{colHeaders}, binary.AppendUvarint(nil, 4000)...)
	for range 4000 {
		sets = append(sets, 0x80, 0x08) // 1024 headers each
		sets = append(sets, bytes.Repeat([]byte{1, 'a', 0}, 1024)...)
	}
	ids := append([]byte{colIDs, 0}, bytes.Repeat([]byte{255, 1}, MaxCount-1)...) // 255 bytes shared
	ids = append(append(ids, 255, 1), make([]byte, MaxCount-1)...)
	ids = append(ids, bytes.Repeat([]byte{'i'}, 256)...)
	grow := []byte{0, byte(KindMessages)}
	grow = append(append(grow, flow1.Epoch[:]...), 1, 0, 0x80, 0x80, 4, 0, 2, 0, 0, 0, 0, 0x80, 0x80, 4)
	grow = append(append(grow, 0, 0xfa, 1), strings.Repeat("a", 250)...)
	for range MaxCount - 1 {
		grow = append(grow, 0xfa, 1, 1, 'b') // 250 bytes shared, one more
	}
	const limit = 32 << 20
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"64 MiB, announced":      {forge(flagZstd, 1, 64<<20, one, huge), ErrLimit},
		"64 MiB, said to be 17":  {forge(flagZstd, 1, MaxRaw, one, huge), ErrCorrupt},
		"64 MiB, said to be 100": {forge(flagZstd, 1, 100, one, huge), ErrCorrupt},
		"17 MiB, honest":         {forge(flagZstd, 1, MaxRaw, one, pack(make([]byte, MaxRaw))), ErrCorrupt},
		"65,536 messages":        {forge(0, MaxCount, 2, one, []byte{0, 0}), nil},
		"headers":                {forge(flagZstd, 4000, len(sets), one, pack(sets)), ErrLimit},
		"ids":                    {forge(flagZstd, MaxCount, len(ids), one, pack(ids)), ErrLimit},
		"subjects":               {forgeFields(grow, []byte{0, 0}), ErrLimit},
		"counts without bytes":   {forge(0, MaxCount, 3, one, []byte{colFlags | colTTLs, 0, 0}), ErrCorrupt},
	} {
		d := NewDecoder()
		var err error
		got := allocated(func() { _, err = d.Decode(c.data, false) })
		if got > limit || !errors.Is(err, c.want) {
			t.Errorf("%s: %d bytes allocated for %d, limit %d; %v, want %v", name, got, len(c.data), limit, err, c.want)
		}
	}
}

// TestFootprint: one large block does not stay in the footprint of the codec.
func TestFootprint(t *testing.T) {
	e, d := NewEncoder(Fast), NewDecoder()
	data, err := e.Append(nil, block(1, msg("s", strings.Repeat("large ", 2<<20))))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Decode(data, false); err != nil {
		t.Fatal(err)
	}
	if cap(e.raw) > keepBuffer || cap(e.packed.b) > keepBuffer || cap(d.raw) > keepBuffer {
		t.Errorf("kept %d, %d and %d bytes; the limit is %d", cap(e.raw), cap(e.packed.b), cap(d.raw), keepBuffer)
	}
}
