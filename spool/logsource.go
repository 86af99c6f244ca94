package spool

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// logSource reads the blocks that our own reader found in a segment: heads that
// a crash left, and segments of which something is damaged. It holds their
// places, not their data.
type logSource struct {
	dir    string
	files  []string
	spots  map[string]spot
	secret secret

	mu     sync.Mutex // guards what follows: a log has one window
	logs   map[int]*logFile
	tables map[int][]byte
}

func newLogSource(sc *scan, blocks []scanned) *logSource {
	src := &logSource{dir: sc.dir, files: sc.files, secret: sc.secret, spots: make(map[string]spot, len(blocks)),
		logs: map[int]*logFile{}, tables: map[int][]byte{}}
	for _, b := range blocks {
		src.spots[string(appendKey(nil, b.flow, b.Range))] = b.at
	}
	return src
}

// get returns a copy of one block.
func (src *logSource) get(key []byte) ([]byte, error) {
	at, ok := src.spots[string(key)]
	if !ok {
		return nil, errors.New("it is not in the logs")
	}
	src.mu.Lock()
	defer src.mu.Unlock()
	name := src.files[at.file]
	if isTable(name) {
		data, err := src.table(at.file)
		if err != nil || at.off+int64(at.size) > int64(len(data)) {
			return nil, errors.Join(err, fmt.Errorf("%s has become shorter", name))
		}
		return bytes.Clone(data[at.off : at.off+int64(at.size)]), nil
	}
	l, err := src.log(at.file)
	if err != nil {
		return nil, err
	}
	r, ok := l.record(at.off)
	if !ok || !bytes.Equal(r.key, key) {
		return nil, fmt.Errorf("there is no record of it at byte %d of %s", at.off, name)
	}
	return bytes.Clone(r.value), nil
}

func (src *logSource) log(file int) (*logFile, error) {
	if l := src.logs[file]; l != nil {
		return l, nil
	}
	l, err := openLog(filepath.Join(src.dir, src.files[file]), src.secret)
	if err == nil {
		src.logs[file] = l
	}
	return l, err
}

func (src *logSource) table(file int) ([]byte, error) {
	if data := src.tables[file]; data != nil {
		return data, nil
	}
	data, _, err := readTable(filepath.Join(src.dir, src.files[file]))
	if err == nil {
		src.tables[file] = data
	}
	return data, err
}

// Close releases the files. It may be used again afterwards.
func (src *logSource) Close() (err error) {
	src.mu.Lock()
	defer src.mu.Unlock()
	for _, l := range src.logs {
		err = errors.Join(err, l.Close())
	}
	clear(src.logs)
	clear(src.tables)
	return err
}

// indexBlocks lists blocks, which stand in order, by flow.
func indexBlocks(blocks []scanned) map[wire.Flow][]wire.Range {
	index := map[wire.Flow][]wire.Range{}
	for _, b := range blocks {
		index[b.flow] = append(index[b.flow], b.Range)
	}
	return index
}

// openLogs opens a segment with our own reader. Every part must still be there.
func (s *Spool) openLogs(g *segment, parts []part) error {
	sc, err := scanSegment(s.geo.keys, g.dir)
	if err != nil {
		return err
	}
	blocks := within(sc.blocks, parts)
	found := partsOf(blocks)
	for _, p := range parts {
		q := partOf(found, p.flow)
		if len(p.ranges) > 0 && (q == nil || len(subtract(p.ranges, q.ranges)) > 0) {
			return &CorruptError{Segment: g.dir, Detail: fmt.Sprintf("blocks of %s are gone", p.flow), Err: sc.cause()}
		}
	}
	g.src = newLogSource(sc, blocks)
	g.imu.Lock()
	g.index = indexBlocks(blocks)
	g.imu.Unlock()
	return nil
}
