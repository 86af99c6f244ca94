package spool

import "slices"

// The labelled steps. A test makes one fail, or kills the process there; the
// name says what is about to be done.
var points = []string{
	"meta:write", "meta:sync", "meta:rename", "meta:folder", // the small facts, on every change
	"epoch:begin",                                  // first message of a run
	"rotate:statfs", "rotate:mkdir", "rotate:open", // a new head, in order
	"rotate:prealloc", "rotate:sync", "rotate:done", //
	"commit:begin", "commit:txn", "commit:vlog-sync", // a commit, in order
	"commit:mem-sync", "commit:publish", "commit:done", //
	"memory:keep", "memory:spill", // a commit to memory, and its way to the disk later
	"seal:begin", "seal:ids", "seal:keep", "seal:close", "seal:sync", // a full head becomes a sealed segment
	"seal:write", "seal:rename", "seal:done", //
	"trim:ids", "trim:meta", "trim:rename", "trim:folder", // a drained segment leaves
	"trim:remove", "trim:done", //
	"drop:remove",                // a full spool makes room
	"remove:note", "remove:done", // what will never come, before anything acts on it
	"read:open", "read:block", // a sealed segment is opened, a block read
	"recover:ids", "recover:shorten", "recover:done", // a head left by a crash is sealed
	"quarantine:rename", "quarantine:report", "quarantine:meta", // a damaged segment
	"salvage:write", "salvage:rename", "salvage:done", // what is readable of it
}

// Points lists the labelled steps, for tests and the crash runner.
func Points() []string { return slices.Clone(points) }

// fault asks the seam. A nil result means: go on.
func (s *Spool) fault(point string) error {
	if s.cfg.Fault == nil {
		return nil
	}
	return s.cfg.Fault(point)
}

// step runs do unless the seam puts an error in its place.
func (s *Spool) step(point string, do func() error) error {
	if err := s.fault(point); err != nil {
		return err
	}
	return do()
}
