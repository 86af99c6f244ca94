package wire

import "testing"

func TestParts(t *testing.T) {
	for _, p := range [][2]int{{1, 1}, {1, 2}, {64, 65}, {MaxParts, MaxParts}} {
		if i, n, ok := ParsePart(PartName(p[0], p[1])); !ok || i != p[0] || n != p[1] {
			t.Errorf("%v: %d/%d %v", p, i, n, ok)
		}
	}
	for _, v := range []string{"", "1", "/", "1/", "/1", "0/1", "2/1", "-1/2", "1/1001", "01/2", "+1/2", "1/2/3", "1/2 ", "99999999999999999999/1"} {
		if i, n, ok := ParsePart(v); ok || i != 0 || n != 0 {
			t.Errorf("%q: %d/%d %v", v, i, n, ok)
		}
	}
}
