package spool

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot counts suspended time as well.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Since(processStart)
	}
	return time.Duration(ts.Nano())
}

const (
	timeError = 5    // adjtimex(2): TIME_ERROR
	staUnsync = 0x40 // adjtimex(2): STA_UNSYNC
)

// clockSynced reports whether the kernel thinks that the wall clock is right:
// a daemon tells it so.
func clockSynced() bool {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	return err == nil && state != timeError && t.Status&staUnsync == 0
}
