// Package uplink moves blocks from an agent's spool into a hub's ledger.
package uplink
