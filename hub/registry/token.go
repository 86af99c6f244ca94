package registry

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strings"
)

// A token is a random link followed by the links it descends from, newest
// first: "c.b.a". So the hub recognises the next of kin of the confirmed state
// without having remembered every token it issued: an agent that made a token
// durable while its confirmation was lost, or while the hub died before noting
// it, still descends from what the hub knows. A copy does not descend from what
// its original confirmed after the copy was taken.
//
// Links are short, so that a hub may die this often in a row before it has
// noted anything: a chance of one in four billion to miss a copy is no harm.
const (
	linkBytes   = 4
	generations = 14 // links in a token, within wire.MaxToken
)

// newToken returns a token that descends from parent, which may be empty.
func newToken(parent string) string {
	var b [linkBytes]byte
	rand.Read(b[:]) // never fails (crypto/rand, Go 1.24)
	links := append([]string{hex.EncodeToString(b[:])}, lineage(parent)...)
	return strings.Join(links[:min(len(links), generations)], ".")
}

// lineage returns the links of a token, newest first; nil if it is not one.
func lineage(token string) []string {
	if token == "" || len(token) > generations*(2*linkBytes+1) {
		return nil
	}
	links := strings.Split(token, ".")
	for _, l := range links {
		if _, err := hex.DecodeString(l); err != nil || len(l) != 2*linkBytes {
			return nil
		}
	}
	return links
}

// link is the token's own; empty if it is not a token.
func link(token string) string {
	if l := lineage(token); l != nil {
		return l[0]
	}
	return ""
}

// descends reports whether the presented token is confirmed, the hub's newest
// knowledge, or follows it.
func descends(presented, confirmed string) bool {
	return slices.Contains(lineage(presented), confirmed)
}
