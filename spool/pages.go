package spool

import (
	"os"
	"path/filepath"
	"sync/atomic"
)

// pages are those of a file that Badger has mapped. What was written or read
// through a mapping counts as memory of this process until it is let go of,
// although the kernel keeps and drops it as it likes: so we let go.
type pages struct {
	maps    []mapping
	touched atomic.Int64 // bytes since the last time
}

// maxTouched is how much of a mapping counts as ours.
const maxTouched = 512 << 10

// touch notes that n bytes were used. The file must stay mapped meanwhile.
func (p *pages) touch(n int) {
	if p.touched.Add(int64(n)) >= maxTouched {
		p.touched.Store(0)
		letGo(p.maps)
	}
}

// pagesOf finds the mappings of the files in dir whose names end so; none where
// that is not offered.
func pagesOf(dir, name string) *pages {
	p := new(pages)
	p.maps, _ = mappings(dir, name) // without, only the memory figures are worse
	return p
}

// settle drops what the first touches of a file left in the page cache in large
// pieces, and asks for single pages from now on: a small commit then dirties
// 4 KiB instead of 64 to 128. It is best effort: only device bytes depend on it.
func settle(f *os.File) *pages {
	p := pagesOf(filepath.Split(f.Name()))
	singly(p.maps)
	letGo(p.maps)
	dropCache(f)
	return p
}
