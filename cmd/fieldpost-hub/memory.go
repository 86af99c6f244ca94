package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// leastLimit is what a hub of a few thousand agents stays below; until then the
// collector has its usual ease.
const leastLimit = 1 << 30

// limitMemory keeps a hub with very many sessions from holding twice of what it
// needs: the limit of the Go heap follows what lives in it. It returns when ctx
// ends; GOMEMLIMIT in the environment turns it off.
func limitMemory(ctx context.Context) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	t := time.NewTicker(2 * time.Second)
	defer t.Stop()
	last := int64(-1)
	for {
		if limit := memoryLimit(liveMemory()); limit != last {
			debug.SetMemoryLimit(limit)
			last = limit
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// memoryLimit leaves a quarter of the live heap to garbage.
func memoryLimit(heap, stacks int64) int64 {
	return max(leastLimit, heap+heap/4+stacks+64<<20)
}

// liveMemory is what the last collection has left of the heap, and all stacks.
func liveMemory() (heap, stacks int64) {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64()), int64(s[1].Value.Uint64())
}
