package agent

import (
	"runtime"
	"testing"
)

func TestFreeListSurvivesCollections(t *testing.T) {
	l := freeList[int]{keep: 2}
	a, b, c := new(int), new(int), new(int)
	for _, v := range []*int{a, b, c} {
		l.put(v)
	}
	runtime.GC()
	runtime.GC()
	if x, y, z := l.get(), l.get(), l.get(); x != b || y != a || z != nil {
		t.Errorf("got %p, %p and %p of %p, %p", x, y, z, a, b)
	}
	l.put(a)
	l.trim()
	if x := l.get(); x != nil {
		t.Error("trimmed, and still there")
	}
}
