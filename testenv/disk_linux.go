package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Disk is a small ext4 of its own, whose power can be cut: everything that was
// not fsynced is then gone.
type Disk struct {
	Dir   string // where it is mounted
	tb    TB
	image string
}

// ErrNoDisk means that this machine or user cannot mount one.
var ErrNoDisk = errors.New("testenv: loop mounts need root, mkfs.ext4 and loop devices")

// NewDisk makes and mounts a disk of the given size.
func NewDisk(tb TB, megabytes int64) (*Disk, error) {
	tb.Helper()
	if _, err := exec.LookPath("mkfs.ext4"); err != nil || os.Geteuid() != 0 {
		return nil, ErrNoDisk
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return nil, ErrNoDisk
	}
	root := shortDir(tb)
	d := &Disk{Dir: filepath.Join(root, "mnt"), tb: tb, image: filepath.Join(root, "image")}
	if err := os.WriteFile(d.image, nil, 0o600); err != nil {
		return nil, err
	}
	if err := os.Truncate(d.image, megabytes<<20); err != nil {
		return nil, err
	}
	if err := os.Mkdir(d.Dir, 0o755); err != nil {
		return nil, err
	}
	d.run("mkfs.ext4", "-q", "-F", d.image)
	d.mount()
	tb.Cleanup(func() { unix.Unmount(d.Dir, unix.MNT_DETACH) }) // it may be unmounted already
	return d, nil
}

func (d *Disk) run(args ...string) {
	d.tb.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		d.tb.Fatalf("%v: %v\n%s", args, err, out)
	}
}

func (d *Disk) mount() { d.tb.Helper(); d.run("mount", "-o", "loop", d.image, d.Dir) }

// CutPower stops all writing at once, without a flush: from here on every write
// fails, and what was not fsynced is lost.
func (d *Disk) CutPower() {
	d.tb.Helper()
	f, err := os.Open(d.Dir)
	if err != nil {
		d.tb.Fatalf("power cut: %v", err)
	}
	defer f.Close()
	// FS_IOC_SHUTDOWN with FS_SHUTDOWN_FLAGS_NOLOGFLUSH (linux/fs.h)
	const fsIocShutdown, noLogFlush = 0x8004587d, 2
	if err := unix.IoctlSetPointerInt(int(f.Fd()), fsIocShutdown, noLogFlush); err != nil {
		d.tb.Fatalf("power cut: %v", err)
	}
}

// PowerOn mounts the disk again; no process may have files on it.
func (d *Disk) PowerOn() {
	d.tb.Helper()
	d.run("umount", d.Dir)
	d.mount()
}

// Fill takes every free block, as a neighbour would that never stops writing.
func (d *Disk) Fill() {
	for size := 64 << 20; size >= 4096; size /= 2 {
		for k := 0; exec.Command("fallocate", "-l", fmt.Sprint(size), filepath.Join(d.Dir, fmt.Sprintf("neighbour-%d-%d", size, k))).Run() == nil; k++ {
		}
	}
}

// Relieve gives back what Fill took.
func (d *Disk) Relieve() {
	d.tb.Helper()
	left, err := filepath.Glob(filepath.Join(d.Dir, "neighbour-*"))
	if err != nil {
		d.tb.Fatalf("%v", err)
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil {
			d.tb.Fatalf("%v", err)
		}
	}
}
