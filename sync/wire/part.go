package wire

import (
	"strconv"
	"strings"
)

// MaxParts is the most pieces that a block, or parts that a message, is stored in:
// they go into one atomic batch.
const MaxParts = 1000

// PartName is the header that says which of n parts a stored message is, from 1 on.
func PartName(i, n int) string { return strconv.Itoa(i) + "/" + strconv.Itoa(n) }

// ParsePart is the inverse of PartName.
func ParsePart(v string) (i, n int, ok bool) {
	a, b, _ := strings.Cut(v, "/")
	i, err1 := strconv.Atoi(a)
	n, err2 := strconv.Atoi(b)
	if err1 != nil || err2 != nil || i < 1 || i > n || n > MaxParts || PartName(i, n) != v {
		return 0, 0, false
	}
	return i, n, true
}
