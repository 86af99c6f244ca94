package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/fieldpost/fieldpost/spool"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// ErrFolderInUse means that a process, probably an agent, has the spool open.
var ErrFolderInUse = errors.New("the spool is in use")

// Folder answers what an agent answers below /v1/spool/ for a spool that no
// agent has open. It begins no epoch and talks to no hub.
type Folder struct {
	a     *Agent
	work  sync.WaitGroup // requests under way
	close func() error
}

// SpoolDir is the folder of the spool.
func (c Config) SpoolDir() string { return c.withDefaults().spoolDir() }

// OpenFolder opens the spool of a configuration. Only with write is anything
// in it changed: what a crash left is recovered then, as at a start of the agent.
// ErrFolderInUse if another process has it open.
func OpenFolder(cfg Config, write bool) (*Folder, error) {
	a, err := New(cfg)
	if err != nil {
		return nil, err
	}
	f := &Folder{a: a}
	st := store(nil)
	if write {
		if st, err = a.openSpool(); err == nil {
			f.close = st.Close
		}
	} else {
		var in *spool.Inspector
		if in, err = spool.Inspect(a.spoolConfig()); err == nil {
			st, f.close = &onlyLook{in}, in.Close
		} else {
			err = a.openError(err)
		}
	}
	switch {
	case errors.Is(err, spool.ErrLocked):
		return nil, fmt.Errorf("%w: %w", ErrFolderInUse, err)
	case err != nil:
		return nil, err
	}
	a.gate.open(st)
	return f, nil
}

// Dir is the folder of the spool.
func (f *Folder) Dir() string { return f.a.cfg.spoolDir() }

// ServeHTTP answers requests below /v1/spool/.
func (f *Folder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.work.Add(1)
	defer f.work.Done()
	if !strings.HasPrefix(r.URL.Path, spoolPath) {
		newProblem(codeNotFound, "no agent runs; %s needs one", r.URL.Path).write(w)
		return
	}
	f.a.serveHTTP(w, r)
}

// Close ends the use of the folder when the last request has returned. None
// comes any more.
func (f *Folder) Close() error {
	f.work.Wait()
	return f.close()
}

// onlyLook is a spool that is opened to be looked at.
type onlyLook struct{ in *spool.Inspector }

func (l *onlyLook) Inspector() *spool.Inspector { return l.in }

var errOnlyLook = errors.New("agent: the spool is opened to be looked at only")

func (l *onlyLook) Purge(spool.Selection) (uint64, error) { return 0, errOnlyLook }
func (l *onlyLook) RemoveReport(string) error             { return errOnlyLook }
func (l *onlyLook) Stats() spool.Stats                    { return spool.Stats{} }
func (l *onlyLook) Clock() int64                          { return 0 }
func (l *onlyLook) Err() error                            { return errOnlyLook }
func (l *onlyLook) Close() error                          { return l.in.Close() }

func (l *onlyLook) Enqueue(_ wire.Lane, _ []wire.Message, done func(spool.Receipt, error)) {
	done(spool.Receipt{}, errOnlyLook)
}
func (l *onlyLook) Delivered(wire.Flow, uint64) (bool, error) { return false, errOnlyLook }
func (l *onlyLook) WaitDelivered(context.Context, wire.Flow, uint64) error {
	return errOnlyLook
}
