// Package policy decides what the link may be used for now: a rate, a budget of
// bytes for each day, and windows in which a lane may send.
//
// It guarantees, whatever is asked of it: over any span of time what it let
// through is at most max_rate times that span, a quarter of a second, and one
// frame of each kind (urgent, and the rest); on any day that it counts, normal
// and bulk go beyond daily_bytes by at most the frame that was under way, and
// that is taken off the next day; a lane that a window names never starts a
// frame outside of its windows; and no jump of the clock stops a lane for
// longer than the configuration can, nor gives a day's budget twice, as long as
// its Usage is kept.
//
// Urgent is told apart. It counts for the rate and for the budget, but waits
// only for its own frames: what normal and bulk owe does not hold it back, they
// wait for what it borrowed. A budget that is used up does not hold it back at
// all. A window does, if it names urgent.
//
// A Policy has no goroutine, no clock and does no I/O; whoever runs it keeps
// its Usage over a restart.
//
// Reading order: policy.go (what is asked), rate.go, budget.go, window.go,
// cron.go, state.go (what an operator is shown).
package policy
