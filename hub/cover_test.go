package hub

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestCoveredBy(t *testing.T) {
	for _, tt := range []struct {
		match, earlier string // patterns between spaces
		want           []int
	}{
		{">", "", nil},
		{">", ">", []int{0}},
		{"a", ">", []int{0}},
		{"a.b", "*.*", []int{0}},
		{"a.b", "a.>", []int{0}},
		{"a.>", "a.>", []int{0}},
		{"a.*", "a.>", []int{0}},
		{"a.>", "a.*", nil},
		{"a.*.c", "a.*.*", []int{0}},
		{"a.b.>", "a.>", []int{0}},
		{"a.b.>", "*.b.>", []int{0}},
		{"*.b.>", "a.b.>", nil},
		{"*", "a b c", nil},
		{"a", "a.>", nil},
		{"a.>", "a", nil},
		{">", "*.>", nil},
		{"*.>", ">", []int{0}},
		{"*.*", "*.>", []int{0}},
		{"a.b.c", "a.b", nil},
		{"a.b", "a.b.c", nil},
		{"ab", "a", nil},
		// Only together.
		{">", "* *.>", []int{0, 1}},
		{"a.>", "x.> a.* a.*.>", []int{1, 2}},
		{"*.b", "a.b x.> *.b.> *.*", []int{3}},
		{">", "* *.* *.*.>", []int{0, 1, 2}},
		{">", "* *.* *.*.*", nil},
		{"a.>", "a.* a.b.>", nil},
		{"a.>", "a.* a.b.> a.*.*.> a.*.c a.*.*", []int{0, 2, 4}},
	} {
		if got := coveredBy(tt.match, strings.Fields(tt.earlier)); !slices.Equal(got, tt.want) {
			t.Errorf("%s behind %q: covered by %v, want %v", tt.match, tt.earlier, got, tt.want)
		}
	}
}

// Small patterns are compared with every subject that they can tell apart.
func TestCoversIsExact(t *testing.T) {
	var patterns, subjects []string
	tokens := []string{"a", "b", "*"}
	for _, x := range tokens {
		patterns = append(patterns, x, x+".>")
		for _, y := range tokens {
			patterns = append(patterns, x+"."+y)
		}
	}
	patterns = append(patterns, ">")
	var grow func(s string, n int)
	grow = func(s string, n int) {
		for _, x := range []string{"a", "b", "c"} {
			subjects = append(subjects, s+x)
			if n > 1 {
				grow(s+x+".", n-1)
			}
		}
	}
	grow("", 3)
	for _, m := range patterns {
		for _, p := range patterns {
			for _, q := range patterns {
				want := true
				for _, s := range subjects {
					want = want && (!under(m, s) || under(p, s) || under(q, s))
				}
				if got := covers(m, []string{p, q}); got != want {
					t.Fatalf("%s under %s or %s: %v, want %v", m, p, q, got, want)
				}
			}
		}
	}
}

// under is the definition.
func under(pattern, subject string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, t := range p {
		switch {
		case i >= len(s):
			return false
		case t == ">":
			return true
		case t != "*" && t != s[i]:
			return false
		}
	}
	return len(p) == len(s)
}

// A table made to be hard ends the search, and no route is refused for it.
func TestCoverEnds(t *testing.T) {
	var hard []string
	for i := range 60 {
		p := slices.Repeat([]string{"*"}, 60)
		p[i] = "a"
		hard = append(hard, strings.Join(p, "."))
	}
	if covers(strings.Join(slices.Repeat([]string{"*"}, 60), "."), hard) {
		t.Error("covered")
	}
	if by := coveredBy(fmt.Sprint(hard[0], ".x"), hard); by != nil {
		t.Errorf("covered by %v", by)
	}
}
