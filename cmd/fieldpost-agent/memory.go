package main

import (
	"context"
	"os"
	"runtime/debug"
	"time"
)

// memoryLimit keeps the Go heap small enough for 40 MB of resident memory with
// the program and the mappings of the spool beside it.
const memoryLimit = 20 << 20

// limitMemory sets the limit, unless the environment did.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}

// stayLean lets go of memory that is not needed until ctx ends.
func stayLean(ctx context.Context) {
	t := time.NewTimer(5 * time.Second) // after the start
	defer t.Stop()
	for {
		select {
		case <-t.C:
			forgetProgram()
			t.Reset(time.Minute)
		case <-ctx.Done():
			return
		}
	}
}
