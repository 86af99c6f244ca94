package testenv

import "syscall"

// dieWithParent keeps programs from outliving a test that was killed itself.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
