// Package conf reads the configuration of both programs.
//
// It guarantees that every key has one default, written once, in the commented
// example that `config example` prints; that a key it does not know and a value of
// the wrong type are errors with file, line and column, all of them reported at
// once; and that each value knows where it came from.
//
// Values are laid over each other: the embedded example, the file, the places of
// the current user for what is still a default (without a file, or when a user
// who is not root named one), the environment.
//
// Reading order: agent.yaml and hub.yaml (the defaults), agent.go and hub.go
// (their shape), load.go (the layers), decode.go (one layer), value.go (sizes,
// durations, percents), overlay.go (what a hub may change), env.go (variables), user.go (places of the current
// user), place.go (where
// a mistake that a package found was written), show.go (the way back to text).
package conf
