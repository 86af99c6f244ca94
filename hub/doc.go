// Package hub assembles the parts of a hub: streams, ingest, unpacking, the
// registry of devices and the HTTP API.
package hub
