// Package testenv is the world in which Fieldpost is tried: real processes that
// are killed, links that fail, disks that lose power, and the one checker that
// says whether a message was lost, stored twice or stored out of order.
//
// Reading order: history.go (what must hold of every run), load.go (who
// publishes, and what was promised to whom), proxy.go and shape.go (the faulty
// link), process.go (agents and hubs as processes), disk_linux.go (a disk whose
// power can be cut) and freeze_linux.go (the moment of the cut), fleet.go (many
// agents), world.go (all of them together). model/ runs the real protocol cores
// in a simulated world, by seed. demo/ is what `make demo` runs.
//
// Nothing that ships imports it.
package testenv
