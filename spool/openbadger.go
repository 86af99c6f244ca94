package spool

import (
	"errors"
	"fmt"
	"io"
	"log"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"

	"github.com/dgraph-io/badger/v4"
)

// errHalfOpen means that Badger gave up in the middle of opening: the disk was
// filled up, or died, that very moment. What it had begun cannot be closed: it
// stays in memory, about a megabyte.
var errHalfOpen = errors.New("badger stopped halfway through opening")

// openBadger opens a new database. Two things in Badger's Open would end the
// process, and are errors here: its files have no blocks yet when it writes their
// first bytes through a mapping (a fault), and a file that it cannot create makes
// it call log.Fatal.
func openBadger(opt badger.Options) (db *badger.DB, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer catchFatal()()
	defer func() {
		switch p := recover().(type) {
		case nil:
		case fatalMessage:
			db, err = nil, fmt.Errorf("%w: %s", errHalfOpen, p)
		default:
			db, err = nil, fmt.Errorf("%w: %w: %v", errHalfOpen, syscall.ENOSPC, p)
		}
	}()
	if db, err = badger.Open(opt); err != nil {
		return nil, err // what Badger returns beside an error cannot be closed
	}
	return db, nil
}

// fatalMessage is what log.Fatal would have printed before it ended the process.
type fatalMessage string

var fatalMu sync.Mutex // held from catchFatal until it is undone

// catchFatal makes log.Fatal panic with a fatalMessage until undo is called;
// everything else that is logged goes where it went before.
func catchFatal() (undo func()) {
	fatalMu.Lock()
	before := log.Writer()
	log.SetOutput(fatalTrap{before})
	return func() {
		log.SetOutput(before)
		fatalMu.Unlock()
	}
}

type fatalTrap struct{ io.Writer }

func (t fatalTrap) Write(line []byte) (int, error) {
	if calledByFatal() {
		panic(fatalMessage(strings.Join(strings.Fields(string(line)), " ")))
	}
	return t.Writer.Write(line)
}

// calledByFatal looks for log.Fatal, Fatalf or Fatalln among the callers.
func calledByFatal() bool {
	pcs := make([]uintptr, 16)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(0, pcs)])
	for {
		f, more := frames.Next()
		if strings.HasPrefix(f.Function, "log.Fatal") {
			return true
		}
		if !more {
			return false
		}
	}
}
