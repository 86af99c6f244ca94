package wire

// Each get function reads one column. It checks that the entries can be there
// before it allocates for them, and what they say as the hub trusts no device.

func getFlags(c *cursor, ms []Message) {
	any := byte(0)
	for i, f := range c.bytes(len(ms)) {
		any |= f
		ms[i].Unsynced = f&flagUnsynced != 0
		ms[i].Blank = Reason(f >> reasonShift)
		if f>>reasonShift != 0 && !ms[i].Blank.Valid() {
			c.fail(ErrVersion, "message %d: flags %#02x", i, f)
			return
		}
	}
	if any == 0 {
		c.fail(ErrCorrupt, "a column of flags without any")
	}
}

func getTimes(c *cursor, b *Block, present bool) {
	n, width := len(b.Messages), 0
	if present {
		width = int(c.u8())
		if c.err == nil && (width < 1 || width > 8) {
			c.fail(ErrCorrupt, "times of %d bytes", width)
		}
	}
	planes := c.bytes(width * n)
	if c.err != nil {
		return
	}
	t, top := b.Accepted, byte(0)
	for i := range b.Messages {
		d := uint64(0)
		for w := range width {
			d |= uint64(planes[w*n+i]) << (8 * w)
		}
		if width > 0 {
			top |= planes[(width-1)*n+i]
		}
		// A sum that wraps lies outside the years 1 to 9999 too.
		if t += unzigzag(d); t < MinTime || t > MaxTime {
			c.fail(ErrCorrupt, "message %d: time %d ms is not in the years 1 to 9999", i, t)
			return
		}
		b.Messages[i].Time = t
	}
	if present && top == 0 {
		c.fail(ErrCorrupt, "times are wider than they need to be")
	}
}

func getTTLs(c *cursor, ms []Message) {
	used := false
	for i := range ms {
		v := c.uvarint()
		if v > MaxTTL {
			c.fail(ErrCorrupt, "message %d: ttl %d ms; the limit is %d", i, v, int64(MaxTTL))
			return
		}
		used = used || v != 0
		ms[i].TTL = int64(v)
	}
	if !used {
		c.fail(ErrCorrupt, "a column of ttls without any")
	}
}

// getSubjects fills in the subjects and leaves in d.next the number of messages
// of each.
func (d *Decoder) getSubjects(c *cursor, b *Block, present bool) {
	k, n, width := len(b.Subjects), len(d.live), 0
	if present {
		width = idWidth(k)
	}
	planes := c.bytes(width * n)
	if c.err == nil && present != (k > 1) {
		c.fail(ErrCorrupt, "%d subjects, and a column of subjects: %t", k, present)
	}
	if c.err != nil || k == 0 {
		c.fail(ErrCorrupt, "messages, but no subject")
		return
	}
	d.ids = d.ids[:0]
	d.next = append(d.next[:0], make([]uint32, k)...)
	for j, i := range d.live {
		id := uint32(0)
		for w := range width {
			id |= uint32(planes[w*n+j]) << (8 * w)
		}
		if int(id) >= k {
			c.fail(ErrCorrupt, "message %d: subject %d of %d", i, id, k)
			return
		}
		d.ids = append(d.ids, id)
		d.next[id]++
		b.Messages[i].Subject = b.Subjects[id]
	}
	for id, count := range d.next {
		if count == 0 {
			c.fail(ErrCorrupt, "subject %d has no message", id)
			return
		}
	}
}

func (d *Decoder) getHeaders(c *cursor, ms []Message) {
	sets := getSets(c, len(d.live))
	seen := 0
	for _, i := range d.live {
		v := c.upTo(len(sets), "a header set")
		switch {
		case v > seen+1:
			c.fail(ErrCorrupt, "message %d: header set %d comes before set %d", i, v, seen+1)
		case v == seen+1:
			seen++
		}
		if c.err != nil {
			return
		}
		if v > 0 {
			ms[i].Headers = sets[v-1]
		}
	}
	if seen != len(sets) {
		c.fail(ErrCorrupt, "header set %d has no message", seen+1)
	}
}

// getSets reads the dictionary of header sets. All keys and values share one string.
func getSets(c *cursor, live int) [][]Pair {
	n := c.upTo(live, "the number of header sets")
	if c.err == nil && n == 0 {
		c.fail(ErrCorrupt, "a column of headers without any")
	}
	if !c.need(4*n, "header sets") {
		return nil
	}
	start := c.off
	pairs := skipSets(c, n)
	if c.err != nil {
		return nil
	}
	text := string(c.b[start:c.off])
	all, sets := make([]Pair, 0, pairs), make([][]Pair, 0, n)
	r := cursor{b: c.b[:c.off], off: start, part: c.part}
	str := func() string {
		n := int(r.uvarint())
		r.off += n
		return text[r.off-n-start : r.off-start]
	}
	for range n {
		from := len(all)
		for range r.uvarint() {
			all = append(all, Pair{Key: str(), Value: str()})
		}
		set := all[from:len(all):len(all)]
		if err := CheckHeaders(set); err != nil {
			c.fail(ErrCorrupt, "header set %d: %v", len(sets)+1, err)
			return nil
		}
		sets = append(sets, set)
	}
	return sets
}

// skipSets checks lengths and limits of n header sets and counts their pairs.
func skipSets(c *cursor, n int) (pairs int) {
	start := c.off
	for i := range n {
		p := c.upTo(MaxHeaders, "the number of headers")
		if c.err == nil && p == 0 {
			c.fail(ErrCorrupt, "header set %d is empty", i+1)
		}
		if pairs += p; pairs > MaxPairs {
			c.fail(ErrLimit, "more than %d headers", MaxPairs)
		}
		for range 2 * p {
			c.bytes(c.upTo(MaxHeaders, "the length of a header"))
		}
		if c.err != nil {
			return 0
		}
		if c.off-start > MaxDict {
			c.fail(ErrLimit, "the header sets are longer than %d bytes together", MaxDict)
			return 0
		}
	}
	return pairs
}

// getIDs reads the publisher ids; they share one string.
func (d *Decoder) getIDs(c *cursor, ms []Message) {
	n := len(d.live)
	if !c.need(2*n, "ids") {
		return
	}
	heads, tails := make([]uint8, n), make([]uint8, n)
	length, total := 0, 0
	for i := range heads {
		heads[i] = uint8(c.upTo(MaxID, "the shared part of an id"))
	}
	for i := range tails {
		tails[i] = uint8(c.upTo(MaxID, "the length of an id"))
		if int(heads[i]) > length {
			c.fail(ErrCorrupt, "id %d shares %d bytes of %d", i, heads[i], length)
		}
		length = int(heads[i]) + int(tails[i])
		if total += length; length > MaxID || total > MaxDict {
			c.fail(ErrLimit, "an id is longer than %d bytes, or all together than %d", MaxID, MaxDict)
		}
		if c.err != nil {
			return
		}
	}
	if total == 0 {
		c.fail(ErrCorrupt, "a column of ids without any")
		return
	}
	text, prev := make([]byte, 0, total), 0
	for i := range heads {
		begin := len(text)
		text = append(text, text[prev:prev+int(heads[i])]...)
		text = append(text, c.bytes(int(tails[i]))...)
		prev = begin
	}
	if c.err != nil {
		return
	}
	all, at := string(text), 0
	for i, m := range d.live {
		end := at + int(heads[i]) + int(tails[i])
		ms[m].ID, at = all[at:end], end
		if ms[m].ID == "" {
			continue
		}
		if err := CheckID(ms[m].ID); err != nil {
			c.fail(ErrCorrupt, "message %d: %v", m, err)
			return
		}
	}
}

// getPayloads cuts the rest of the body into payloads and hands them to the
// messages in order of arrival.
func (d *Decoder) getPayloads(c *cursor, b *Block, present bool) {
	n := len(d.live)
	if present && !c.need(n, "payload lengths") {
		return
	}
	d.ends = d.ends[:0]
	total, one, differ := 0, 0, false
	for i := range n {
		if present || i == 0 {
			v := c.length(one, present)
			differ = differ || i > 0 && v != one
			one = v
		}
		if total += one; total > c.rest() {
			c.fail(ErrCorrupt, "payloads of %d bytes and more in %d", total, c.rest())
			return
		}
		d.ends = append(d.ends, total)
	}
	if present && c.err == nil && !differ {
		c.fail(ErrCorrupt, "a column of lengths that are all the same")
	}
	text := c.bytes(total)
	if c.err != nil {
		return
	}
	// d.next: from the count of each subject to the place of its first message.
	place := uint32(0)
	for i, count := range d.next {
		d.next[i] = place
		place += count
	}
	for i, m := range d.live {
		p := d.next[d.ids[i]]
		d.next[d.ids[i]]++
		begin := 0
		if p > 0 {
			begin = d.ends[p-1]
		}
		b.Messages[m].Payload = text[begin:d.ends[p]:d.ends[p]]
	}
}

// length reads one payload length: the difference to the one before, or itself.
func (c *cursor) length(prev int, diff bool) int {
	if !diff {
		return c.upTo(MaxRaw, "the length of a payload")
	}
	return c.lengthFrom(prev, c.varint())
}

// lengthFrom is a length of a payload that is d more than prev.
func (c *cursor) lengthFrom(prev int, d int64) int {
	if d < int64(-prev) || d > int64(MaxRaw-prev) {
		c.fail(ErrCorrupt, "the length of a payload is %d and %d more", prev, d)
		return 0
	}
	return prev + int(d)
}
