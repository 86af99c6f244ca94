package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
)

func TestMemoryLimitFollowsTheHeap(t *testing.T) {
	for _, c := range []struct{ heap, stacks, want int64 }{
		{0, 0, leastLimit},
		{600 << 20, 100 << 20, leastLimit},
		{1 << 30, 256 << 20, 1<<30 + 256<<20 + 256<<20 + 64<<20},
	} {
		if got := memoryLimit(c.heap, c.stacks); got != c.want {
			t.Errorf("%d live and %d of stacks: %d, want %d", c.heap, c.stacks, got, c.want)
		}
	}
	runtime.GC()
	if heap, stacks := liveMemory(); heap <= 0 || stacks <= 0 {
		t.Errorf("%d live and %d of stacks", heap, stacks)
	}
}

func TestLimitMemory(t *testing.T) {
	was := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(was)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	t.Setenv("GOMEMLIMIT", "64MiB")
	limitMemory(ctx)
	if got := debug.SetMemoryLimit(-1); got != was {
		t.Errorf("the limit of the environment became %d", got)
	}
	t.Setenv("GOMEMLIMIT", "")
	limitMemory(ctx)
	if got := debug.SetMemoryLimit(-1); got != leastLimit {
		t.Errorf("without one it is %d", got)
	}
}
