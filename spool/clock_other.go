//go:build !linux

package spool

import "time"

// sinceBoot counts from the start of the process: nothing better is portable.
func sinceBoot() time.Duration { return time.Since(processStart) }

// clockSynced is not known here; these hosts keep their clock by themselves.
func clockSynced() bool { return true }
