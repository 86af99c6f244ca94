package link

import (
	"net"

	"golang.org/x/sys/unix"
)

// boundUnsent keeps the kernel from queueing more than n bytes that it has not
// sent yet, without limiting what is on its way: urgent messages do not stand
// behind a full send buffer, and a write that waited tells that the peer lives.
// It is an optimisation; an error changes nothing else.
func boundUnsent(c *net.TCPConn, n int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, n)
	})
}
