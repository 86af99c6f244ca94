package main

import (
	"runtime/debug"
	"testing"
)

func TestMemoryLimit(t *testing.T) {
	was := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(was)
	t.Setenv("GOMEMLIMIT", "64MiB")
	limitMemory()
	if got := debug.SetMemoryLimit(-1); got != was {
		t.Errorf("the limit of the environment became %d", got)
	}
	t.Setenv("GOMEMLIMIT", "")
	limitMemory()
	if got := debug.SetMemoryLimit(-1); got != memoryLimit {
		t.Errorf("without one it is %d", got)
	}
	for range 3 { // whatever is forgotten, the program goes on
		forgetProgram()
	}
}
