// Package cli is what both command lines share.
//
// It guarantees the exit codes of the contract (0 ok, 1 failed, 2 usage, 75
// temporary, 78 bad configuration), that results go to standard output and
// everything else to standard error, and that --json turns a result into one
// JSON document a line.
//
// Reading order: run.go (from arguments to an exit code), exit.go (which error
// is which code), output.go (results), visible.go (what
// others wrote), meter.go (progress in bytes), filter.go (filters in a call), logger.go (the programs' log), signal.go
// (how they are stopped), version.go.
package cli
