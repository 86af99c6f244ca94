package desired

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
)

// Devices is the part of the registry that knows labels and who is online.
type Devices interface {
	Device(device string) (admin.Device, bool)
	Devices(after, filter string, limit int) admin.Devices
}

// Config configures Desired. Store, Conn and Devices are required; the rest has
// defaults.
type Config struct {
	Store   *store.Store // EnsureStreams has created every stream
	Conn    *nats.Conn   // on which devices are woken
	Devices Devices

	MaxDocuments int   // 0: 10,000
	MaxBytes     int64 // of all documents; 0: 64 MiB
	WakeRate     int   // devices a second that one instance wakes; 0: 2,000

	Rejected func(reason string) // of what devices report

	// Fault is called at every labelled step (Points). A returned error takes the
	// place of the step's own. Tests only.
	Fault func(point string) error
	Log   *slog.Logger     // nil: discard
	Now   func() time.Time // nil: time.Now
}

// Points lists the labels that Config.Fault sees: before a document is written and
// after, before what was read is known, before devices are woken, and before a
// report is written.
func Points() []string {
	return []string{"desired:set", "desired:stored", "desired:read", "desired:wake", "desired:report"}
}

// Errors that callers branch on, next to those of store.
var (
	ErrInvalid = errors.New("desired: not a document")
	ErrNone    = errors.New("desired: nothing was set")
	ErrChanged = errors.New("desired: another revision")
	ErrLarge   = errors.New("desired: too large")
	ErrFull    = errors.New("desired: no room")
	ErrLoading = errors.New("desired: the settings are still being read")
)

// tries is how often others may get in the way.
const tries = 8

// Desired is one hub instance's part in desired settings. Its methods are safe for
// concurrent use.
type Desired struct {
	cfg     Config
	setting sync.Mutex // held by who checks the limits and writes

	mu      sync.RWMutex
	table   table              // guarded by mu
	loaded  bool               // guarded by mu: table is all that the bucket has
	seen    uint64             // revision up to which it was read; guarded by mu
	of      string             // incarnation of the bucket; guarded by mu
	cache   map[string]*merged // by the revisions of what is merged; guarded by mu
	err     error              // why it is not read; guarded by mu
	waking  map[string]bool    // keys whose devices are to be woken; guarded by mu
	late    map[string]bool    // devices that asked while this instance lagged; guarded by mu
	wakeNow chan struct{}      // filled when waking has something

	reports reportRate
}

// New checks cfg. Nothing is known before Run.
func New(cfg Config) (*Desired, error) {
	if cfg.Store == nil || cfg.Conn == nil || cfg.Devices == nil {
		return nil, errors.New("desired: Store, Conn or Devices is missing")
	}
	if cfg.MaxDocuments == 0 {
		cfg.MaxDocuments = 10_000
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 64 << 20
	}
	if cfg.WakeRate == 0 {
		cfg.WakeRate = 2000
	}
	if cfg.Rejected == nil {
		cfg.Rejected = func(string) {}
	}
	if cfg.Fault == nil {
		cfg.Fault = func(string) error { return nil }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Desired{
		cfg: cfg, table: newTable(), cache: map[string]*merged{}, waking: map[string]bool{}, late: map[string]bool{}, wakeNow: make(chan struct{}, 1),
		reports: reportRate{devices: map[string]*allowance{}},
	}, nil
}

// Err says why what is wanted is not read; nil if it is.
func (d *Desired) Err() error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.err
}

// ready returns ErrLoading until the bucket has been read to its end.
func (d *Desired) ready() error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if !d.loaded {
		return ErrLoading
	}
	return nil
}

// last is the newest message of a key, as the leader has it.
func (d *Desired) last(ctx context.Context, subject string) (store.Stored, error) {
	return d.cfg.Store.Last(ctx, store.DesiredIndex, subject)
}

func (d *Desired) fault(step string) error {
	if err := d.cfg.Fault("desired:" + step); err != nil {
		return fmt.Errorf("desired: %s: %w", step, err)
	}
	return nil
}
