package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// authTimeout leaves an agent behind a satellite, or on a modem, the round trips
// that a login takes.
const authTimeout = 15 * time.Second

// pingInterval is longer than an idle metered session is silent, so that the
// server adds nothing to what that costs. Sessions notice a dead link themselves.
const pingInterval = 6 * time.Minute

// embedded is a nats-server in this process.
type embedded struct {
	srv    *server.Server
	key    nkeys.KeyPair // the hub's own
	unlock func()
}

// users are the hub itself, who may do everything, and the guest, who is whoever
// connects without credentials. A guest may read and call everything, but not
// write where only the hub writes: one foreign message there would be taken for
// a projected one.
func users(cfg Config, hub, guest string) []*server.NkeyUser {
	deny := append([]string{"fp.blocks.>", "fp.wake.>", "fp.cmd.>", AuditPrefix + ">", "dead.>", "retry.>", "$JS.EVENT.>",
		"$KV.fieldpost_devices.>", "$KV.fieldpost_hub.>", "$KV.fieldpost_dead.>", "$KV.fieldpost_commands.>", "$KV.fieldpost_desired.>"}, cfg.Protect...)
	return []*server.NkeyUser{
		{Nkey: hub},
		{Nkey: guest, Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: deny}}},
	}
}

// newUser returns a key that lives as long as this process.
func newUser() (key nkeys.KeyPair, public string, err error) {
	if key, err = nkeys.CreateUser(); err == nil {
		public, err = key.PublicKey()
	}
	return key, public, err
}

// login proves to the embedded server that this is the hub itself.
func (e *embedded) login() (nats.Option, error) {
	pub, err := e.key.PublicKey()
	return nats.Nkey(pub, e.key.Sign), err
}

// startServer returns when the server takes clients.
func startServer(ctx context.Context, cfg Config) (*embedded, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("store: data folder: %w", err)
	}
	unlock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	host, port, _ := splitListen(cfg.Listen) // checked by withDefaults
	key, hub, err := newUser()
	_, guest, err2 := newUser()
	if err := errors.Join(err, err2); err != nil {
		unlock()
		return nil, fmt.Errorf("store: embedded server: %w", err)
	}
	srv, err := server.NewServer(&server.Options{
		Nkeys:                  users(cfg, hub, guest),
		NoAuthUser:             guest,
		ServerName:             "fieldpost-hub",
		Host:                   host,
		Port:                   port,
		DontListen:             cfg.Offline,
		NoSigs:                 true,
		NoLog:                  true,
		MaxPayload:             int32(cfg.MaxPayload),
		AuthTimeout:            authTimeout.Seconds(),
		PingInterval:           pingInterval,
		JetStream:              true,
		StoreDir:               cfg.Dir,
		SyncAlways:             !cfg.Unsynced, // an answer means durable
		JetStreamMaxMemory:     64 << 20,
		JetStreamMaxStore:      cfg.MaxStore,
		DisableJetStreamBanner: true,
		StreamMaxBufferedSize:  256 << 20, // several batches of large blocks wait for one sync
		JetStreamLimits: server.JSLimitOpts{
			MaxBatchSize:              MaxBatch,
			MaxBatchInflightPerStream: 1000, // an abandoned batch counts until its timeout
			MaxBatchInflightTotal:     10_000,
			MaxBatchTimeout:           10 * time.Second,
			DefaultMaxConsumers:       -1, // back ends may have many
		},
	})
	if err != nil {
		unlock()
		return nil, fmt.Errorf("store: embedded server: %w", err)
	}
	e := &embedded{srv: srv, key: key, unlock: unlock}
	log := &serverLog{log: cfg.Log, fatal: make(chan string, 1), said: map[string]time.Time{}}
	srv.SetLoggerV2(log, false, false, false)
	go srv.Start() // returns by itself; Shutdown waits for what it started
	if err := e.ready(ctx, log); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

func (e *embedded) ready(ctx context.Context, log *serverLog) error {
	for !e.srv.ReadyForConnections(50 * time.Millisecond) {
		select {
		case why := <-log.fatal:
			return fmt.Errorf("store: embedded server: %s", why)
		case <-ctx.Done():
			return fmt.Errorf("store: embedded server is not ready: %w", context.Cause(ctx))
		default:
		}
	}
	if !e.srv.JetStreamEnabled() {
		return errors.New("store: embedded server: JetStream did not start; the log says why")
	}
	return nil
}

func (e *embedded) close() {
	e.srv.Shutdown()
	e.srv.WaitForShutdown()
	e.unlock()
}

// serverLog passes the server's warnings and errors on. Its notices are about
// its own life, not the hub's.
type serverLog struct {
	log   *slog.Logger
	fatal chan string // the first fatal message

	mu   sync.Mutex
	said map[string]time.Time // guarded by mu
}

const (
	sayAgain = 30 * time.Second // what the server repeats is logged so often
	maxSaid  = 100
)

func (l *serverLog) put(level slog.Level, format string, v []any) {
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	text := strings.TrimSpace(fmt.Sprintf(format, v...))
	if !l.repeats(text, time.Now()) {
		l.log.Log(context.Background(), level, "nats-server: "+text)
	}
}

func (l *serverLog) repeats(text string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.said[text]; ok && now.Sub(at) < sayAgain {
		return true
	}
	if len(l.said) >= maxSaid {
		clear(l.said)
	}
	l.said[text] = now
	return false
}

func (l *serverLog) Noticef(format string, v ...any) { l.put(slog.LevelDebug, format, v) }
func (l *serverLog) Warnf(format string, v ...any)   { l.put(slog.LevelWarn, format, v) }
func (l *serverLog) Errorf(format string, v ...any)  { l.put(slog.LevelError, format, v) }
func (l *serverLog) Debugf(string, ...any)           {}
func (l *serverLog) Tracef(string, ...any)           {}

func (l *serverLog) Fatalf(format string, v ...any) {
	l.put(slog.LevelError, format, v)
	select {
	case l.fatal <- fmt.Sprintf(format, v...):
	default:
	}
}
