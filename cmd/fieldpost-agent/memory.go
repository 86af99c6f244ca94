package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"time"
)

// memoryLimit keeps the Go heap small enough for 40 MB of resident memory with
// the program and the mappings of the spool beside it.
const memoryLimit = 24 << 20

// limitMemory sets the limit, unless the environment did.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}

// stayLean lets go of memory that is not needed until ctx ends.
func stayLean(ctx context.Context, trim func()) {
	t := time.NewTimer(5 * time.Second) // after the start
	defer t.Stop()
	var collected uint32 // as of the last look
	for {
		select {
		case <-t.C:
			forgetProgram()
			if collections() == collected { // idle: what a busy time has left over goes back
				trim()
				debug.FreeOSMemory()
			}
			collected = collections()
			t.Reset(time.Minute)
		case <-ctx.Done():
			return
		}
	}
}

// collections is how often garbage was collected so far.
func collections() uint32 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.NumGC
}
