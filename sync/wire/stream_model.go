package wire

// The model foretells each byte of a session from those before, and a range
// coder spends bits only on what was not foretold (STREAM.md). Both ends run the
// same code in integers, so that it never differs. It takes some 0.1 µs a byte
// and 54 KB.
const (
	modelWindow = 1 << 14 // bytes that are remembered
	modelSlots  = 1 << 13
	modelPlaces = 1 << 11
	modelInputs = 3
	longMatch   = 8 // from here on a match is trusted more than the subject's last payload
	mostMatch   = 15
	mostTrust   = 15
	firstTrust  = 8
	mostSeen    = 30 // observations after which a slot learns no slower
	learnRate   = 22
	leastChance = 32 // of 65,536: what a decision is given at the least
)

// The weights are kept by what is decided: whether the first guess holds, by its
// trust; whether the second does; else which bit of a byte, of a field or a payload.
const (
	setSecond = 3 * (mostTrust + 1)
	setBits   = setSecond + 1
	modelSets = setBits + 16
)

// Fields are told apart, as what is foretold in one is noise in another.
const (
	fieldPayload = iota
	fieldHead
	fieldFlow
	fieldControl
	fieldExtras
	fieldTime
	fieldTTL
	fieldReason
	fieldSubject
	fieldHeaders
	fieldID
	fieldLength
)

// modelSlot counts how often a decision was yes in one context.
type modelSlot struct {
	p     uint16 // of 65,536
	seen  uint8  // 0: free
	check uint8
}

type streamModel struct {
	rangeCoder
	slots   [modelSlots]modelSlot
	weights [modelSets][modelInputs + 1]int32
	window  [modelWindow]byte
	places  [modelPlaces]uint16 // by hash of five bytes: where they ended last, its low bits
	n       uint32              // bytes so far, and a window; wraps

	field, pos uint32 // where in a row
	last4      uint32 // bytes, newest lowest
	match      uint32 // what followed the same five bytes
	matched    uint32 // how long it has held; 0: none
	like       uint32 // the same place in the subject's last payload
	trust      uint32 // in it; 0: none
	ctx        [modelInputs]uint32
}

func newStreamModel() *streamModel {
	m := &streamModel{n: modelWindow}
	for i := range m.weights {
		for k := range m.weights[i] {
			m.weights[i][k] = 1 << 14
		}
	}
	return m
}

// begin says which field comes.
func (m *streamModel) begin(field uint32) {
	m.field, m.pos, m.trust = field, 0, 0
}

// beginPayload also says where the last payload of the subject began, 0 if there
// is none, and returns where this one does.
func (m *streamModel) beginPayload(last uint32) uint32 {
	m.begin(fieldPayload)
	if last != 0 && m.n-last < modelWindow {
		m.like, m.trust = last, firstTrust
	}
	return m.n
}

// code writes x, or reads a byte and returns it.
func (m *streamModel) code(x byte) byte {
	first, second, set := m.guesses()
	if first >= 0 {
		if m.guess(first, uint32(set), uint32(set), &x) || second >= 0 && m.guess(second, setSecond, uint32(first), &x) {
			m.learn(x)
			return x
		}
	}
	m.contexts(0)
	m.ctx[2] = scramble(uint32(first+1)<<16 | m.last4&0xff<<8 | 6<<28)
	bits := setBits
	if m.field != fieldPayload {
		bits += 8
	}
	node := uint32(1)
	for i := 7; i >= 0; i-- {
		node = node<<1 | m.decide(uint32(x)>>i&1, node, &m.weights[bits+i])
	}
	m.learn(byte(node))
	return byte(node)
}

// guesses are the bytes that may come, −1 for none, and the set of the first.
func (m *streamModel) guesses() (first, second, set int) {
	first, second = -1, -1
	if m.trust > 0 {
		first, set = int(m.window[m.like%modelWindow]), int(m.trust)
	}
	if m.matched == 0 {
		return first, second, set
	}
	match := int(m.window[m.match%modelWindow])
	switch {
	case match == first:
		set += 2 * (mostTrust + 1)
	case first < 0 || m.matched >= longMatch:
		first, second, set = match, first, mostTrust+1+int(m.matched)
	default:
		second = match
	}
	return first, second, set
}

// guess tells, or learns, whether b comes, and sets x if it does.
func (m *streamModel) guess(b int, set, beside uint32, x *byte) bool {
	salt := (uint32(b) + 1) << 8 * 0x9e3779b1
	if set == setSecond {
		salt = ^salt
	}
	m.contexts(salt)
	m.ctx[2] = scramble(salt + beside*77 + m.last4&0xff<<20)
	y := uint32(0)
	if int(*x) == b {
		y = 1
	}
	if m.decide(y, 0x100, &m.weights[set]) == 0 {
		return false
	}
	*x = byte(b)
	return true
}

// contexts are those that a decision about a byte is counted in.
func (m *streamModel) contexts(salt uint32) {
	where := uint32(0)
	if m.field != fieldPayload {
		where = m.field<<2 | min(m.pos, 3)
	}
	m.ctx[0] = scramble((1<<24 | where<<16 | m.last4&0xff) ^ salt)
	m.ctx[1] = scramble((2<<24 | where<<16 | m.last4&0xffff) ^ salt)
}

// scramble spreads x over all bits.
func scramble(x uint32) uint32 {
	x *= 0x2c1b3c6d
	x ^= x >> 15
	x *= 0x297a2d39
	return x ^ x>>13
}

// decide codes one yes or no, y if it is written, and learns from it.
func (m *streamModel) decide(y, node uint32, weights *[modelInputs + 1]int32) uint32 {
	var in [modelInputs + 1]int64
	var at [modelInputs]*modelSlot
	for k, c := range m.ctx {
		s := m.slot(scramble(c + node*0x9e3779b1))
		if at[k] = s; s.seen > 0 {
			in[k] = int64(stretch[s.p>>4])
		}
	}
	in[modelInputs] = 256
	sum := int64(0)
	for k, v := range in {
		sum += v * int64(weights[k])
	}
	p := squash(sum >> 16)
	y = m.rangeCoder.bit(y, uint32(min(max(p<<4+8, leastChance), 1<<16-leastChance)))
	miss := (int64(y)<<12 - p) * learnRate
	for k, v := range in {
		weights[k] += int32((v*miss + 1<<13) >> 14)
	}
	target := int32(y) * 65535
	for _, s := range at {
		s.p = uint16(int32(s.p) + (target-int32(s.p))*pace[s.seen]>>16)
		s.seen = min(s.seen+1, mostSeen)
	}
	return y
}

// slot finds the one of hash h, or takes the less used one of its two places.
func (m *streamModel) slot(h uint32) *modelSlot {
	i, check := h/(1<<32/modelSlots), uint8(h)
	s := &m.slots[i]
	if s.seen > 0 && s.check == check {
		return s
	}
	o := &m.slots[i^1]
	if o.seen > 0 && o.check == check {
		return o
	}
	if o.seen < s.seen {
		s = o
	}
	*s = modelSlot{p: 1 << 15, check: check}
	return s
}

// learn moves on behind x.
func (m *streamModel) learn(x byte) {
	if m.trust > 0 {
		if m.window[m.like%modelWindow] == x {
			m.trust = min(m.trust+1, mostTrust)
		} else {
			m.trust = max(m.trust/2, 1)
		}
		m.like++
	}
	if m.matched > 0 && m.window[m.match%modelWindow] == x {
		m.matched = min(m.matched+1, mostMatch)
		m.match++
	} else {
		m.matched = 0
	}
	fifth := m.last4 >> 24
	m.window[m.n%modelWindow] = x
	m.n++
	m.pos++
	m.last4 = m.last4<<8 | uint32(x)
	place := &m.places[scramble(m.last4*0x9e3779b1+fifth)/(1<<32/modelPlaces)]
	if m.matched == 0 {
		m.find(uint32(uint16(m.n) - *place))
	}
	*place = uint16(m.n)
}

// find takes what stands back bytes ago for a match if the five before are the last five.
func (m *streamModel) find(back uint32) {
	if back == 0 || back >= modelWindow-mostMatch {
		return
	}
	at, l := m.n-back, uint32(0)
	for l < mostMatch && m.window[(at-1-l)%modelWindow] == m.window[(m.n-1-l)%modelWindow] {
		l++
	}
	if l >= 5 {
		m.match, m.matched = at, l
	}
}

// pace is how fast a slot learns that has seen so many: 1 / (n + 1.5), of 65,536.
var pace = func() (t [mostSeen + 1]int32) {
	for n := range t {
		t[n] = 1 << 17 / (2*int32(n) + 3)
	}
	return t
}()

// squash is 4,096 / (1 + e^(−d/256)) between points that both ends know.
func squash(d int64) int64 {
	switch {
	case d > 2047:
		return 4095
	case d < -2047:
		return 1
	}
	w, i := d&127, d>>7+16
	return (squashed[i]*(128-w) + squashed[i+1]*w + 64) >> 7
}

var squashed = [...]int64{
	1, 2, 3, 6, 10, 16, 27, 45, 73, 120, 194, 310, 488, 747, 1101, 1546, 2047, 2549, 2994,
	3348, 3607, 3785, 3901, 3975, 4022, 4050, 4068, 4079, 4085, 4089, 4092, 4093, 4094,
}

// stretch is the inverse of squash: the least d that yields p or more.
var stretch = func() (t [4096]int16) {
	p := int64(0)
	for d := int64(-2047); d <= 2047; d++ {
		for ; p <= squash(d); p++ {
			t[p] = int16(d)
		}
	}
	for ; p < int64(len(t)); p++ {
		t[p] = 2047
	}
	return t
}()
