//go:build !linux

package link

import "net"

// boundUnsent bounds the kernel's send buffer. It is an optimisation; an error
// changes nothing else.
func boundUnsent(c *net.TCPConn, n int) { c.SetWriteBuffer(4 * n) }
