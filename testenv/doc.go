// Package testenv is the world in which Fieldpost is tried: real processes that
// are killed, links that fail, disks that lose power, and the one checker that
// says whether a message was lost, stored twice or stored out of order.
//
// Reading order: history.go (what must hold of every run), load.go (who
// publishes, and what was promised to whom), proxy.go (the faulty link),
// process.go (agents and hubs as processes), disk_linux.go and freeze_linux.go
// (power that goes), world.go (all of them together).
// model/ runs the real protocol cores in a simulated world, by seed. demo/ is
// what `make demo` runs.
//
// Nothing that ships imports it.
package testenv
