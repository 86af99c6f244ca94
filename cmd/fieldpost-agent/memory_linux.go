package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forgetProgram lets go of the pages of the program file itself that are mapped
// now. A third of the agent's resident memory was code and tables that only its
// start needed; what is needed again comes from the page cache. A mapping with
// pages of our own, which would be lost, is left alone.
func forgetProgram() {
	exe, err := os.Executable()
	if err != nil {
		return
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer f.Close()
	var at []byte // the mapping that the lines are about; nil: not the program's
	ours := true  // it has pages of our own, as far as read
	done := func() {
		if at != nil && !ours {
			_ = unix.Madvise(at, unix.MADV_DONTNEED) // best effort
		}
	}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line := sc.Text()
		var from, to uintptr
		var perm string
		var kb int
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &from, &to, &perm); n == 3 {
			done()
			at, ours = nil, true
			if strings.HasSuffix(line, " "+exe) && (perm == "r-xp" || perm == "r--p") {
				at = unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&from))), to-from)
			}
		} else if n, _ := fmt.Sscanf(line, "Anonymous: %d kB", &kb); n == 1 {
			ours = kb > 0
		}
	}
	done()
}
