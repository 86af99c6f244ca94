// Package model runs the real protocol cores (uplink.Sender, uplink.Receiver and
// the unpacker's position arithmetic) in a simulated world, one seed a run:
// agents that crash, are wiped, restored from older copies or cloned; links that
// die, leaving late frames behind; hub instances that crash and race; a ledger
// with JetStream's guards and lost answers; retention; unpackers that race.
//
// Every run is checked against what publishers were promised. Rules of the
// protocol can be switched off one at a time: the model then finds the fault,
// which is how we know that it can.
//
// Reading order: world.go (one run), spool.go, agent.go, network.go,
// instance.go, ledger.go, unpack.go, check.go.
package model
