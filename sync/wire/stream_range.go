package wire

// rangeCoder turns decisions and their chances into bytes, or back. A frame
// begins with the whole range.
type rangeCoder struct {
	low, high uint32
	reading   bool
	value     uint32 // reading: the four bytes at the range
	body      []byte // the frame
	shifted   int    // bytes that are settled
}

// start begins a frame: body is what is read, or what is written to.
func (r *rangeCoder) start(body []byte, reading bool) {
	*r = rangeCoder{high: 1<<32 - 1, reading: reading, body: body}
	if reading {
		for i := range 4 {
			r.value = r.value<<8 | r.at(i)
		}
	}
}

// at is a byte of the frame that is read; behind its end are zeros.
func (r *rangeCoder) at(i int) uint32 {
	if i < len(r.body) {
		return uint32(r.body[i])
	}
	return 0
}

// bit writes y, or returns what was written, given the chance of 1 of 65,536.
func (r *rangeCoder) bit(y, chance uint32) uint32 {
	mid := r.low + uint32(uint64(r.high-r.low)*uint64(chance)>>16)
	if r.reading {
		y = 0
		if r.value <= mid {
			y = 1
		}
	}
	if y == 1 {
		r.high = mid
	} else {
		r.low = mid + 1
	}
	for (r.low^r.high)>>24 == 0 {
		if r.reading {
			r.value = r.value<<8 | r.at(r.shifted+4)
		} else {
			r.body = append(r.body, byte(r.high>>24))
		}
		r.shifted++
		r.low, r.high = r.low<<8, r.high<<8|0xff
	}
	return y
}

// finish writes the fewest bytes that, with zeros behind, lie in the range; a
// frame has at least one.
func (r *rangeCoder) finish() []byte {
	v, shift := uint32(0), 32
	for v < r.low || r.shifted == 0 && shift == 32 { // high, with shift 0, lies in it
		shift -= 8
		v = r.high >> shift << shift
	}
	for b := 24; b >= shift; b -= 8 {
		r.body = append(r.body, byte(v>>b))
	}
	return r.body
}

// spare reports how many bytes the frame has beyond those that are settled: more
// than four are not of the frame, less than none were never written.
func (r *rangeCoder) spare() int { return len(r.body) - r.shifted }
