package spool

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// syncData makes the content of f durable, also what was written through a mapping.
func syncData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}

// freeBytes is what the file system of dir has left for us, and its size.
func freeBytes(dir string) (free, size int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	unit := int64(st.Bsize)
	return int64(st.Bavail) * unit, int64(st.Blocks) * unit, nil
}

// allocated is the disk space that a file takes.
func allocated(fi os.FileInfo) int64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return int64(st.Blocks) * 512
	}
	return fi.Size()
}

// preallocate gives f real blocks up to size, so that a store through a mapping
// never meets a full disk (it would be a SIGBUS). The length of the file stays.
func preallocate(f *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
		switch {
		case err == unix.EINTR:
		case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS):
			return writeZeros(f, size)
		default:
			return err
		}
	}
}

// singly asks for single pages where a mapping is touched.
func singly(maps []mapping) {
	for _, m := range maps {
		madvise(m, unix.MADV_RANDOM)
	}
}

// letGo forgets the pages of mappings. Of a shared file mapping only the page
// table forgets: what is dirty stays dirty, in the page cache.
func letGo(maps []mapping) {
	for _, m := range maps {
		madvise(m, unix.MADV_DONTNEED)
	}
}

// mapShared maps the first bytes of f for writing; nil if that is not possible.
func mapShared(f *os.File, size int) []byte {
	m, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	return m
}

func unmap(m []byte) {
	if m != nil {
		_ = unix.Munmap(m)
	}
}

// dropCache drops the clean pages of f from the page cache.
func dropCache(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }

type mapping struct{ from, to uintptr }

// mappings finds where this process has the files in dir mapped whose names end so.
func mappings(dir, name string) ([]mapping, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []mapping
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		line := sc.Text()
		if !strings.HasSuffix(line, name) || !strings.Contains(line, abs+"/") {
			continue
		}
		var m mapping
		if n, _ := fmt.Sscanf(line, "%x-%x", &m.from, &m.to); n == 2 {
			out = append(out, m)
		}
	}
	return out, sc.Err()
}

func madvise(m mapping, advice int) {
	data := unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&m.from))), m.to-m.from)
	_ = unix.Madvise(data, advice)
}

// dataEnd is an offset behind which f holds only zeros: blocks that were
// preallocated and never written are not read.
func dataEnd(f *os.File, size int64) int64 {
	end := int64(0)
	for off := int64(0); off < size; {
		data, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
		if err == unix.ENXIO {
			return end
		}
		if err == nil {
			off, err = unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE)
		}
		if err != nil {
			return size // the file system does not say
		}
		end = off
	}
	return min(end, size)
}

// bootID tells one run of the machine from another; 0 if it cannot be known.
var bootID = sync.OnceValue(func() uint64 {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return 0
	}
	sum := sha256.Sum256(bytes.TrimSpace(text))
	return binary.BigEndian.Uint64(sum[:])
})

// probe asks whether the file system of f still takes writes. One that has died,
// or was made read-only after an error, refuses stores through mappings too,
// and these are not errors but the end of the process.
func probe(f *os.File) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		return unix.EROFS
	}
	_, err := unix.Pwrite(int(f.Fd()), nil, 0) // writes nothing
	return err
}
