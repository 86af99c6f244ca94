package unpack

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/store"
)

// tablesValue is every version of the route table for one ledger.
type tablesValue struct {
	Incarnation string `json:"incarnation"`
	Versions    Tables `json:"versions"`
}

// declareTables makes the configured table hold from the ledger's next block on,
// if it does not hold already. A process does so once, before it unpacks
// anything: of instances with different routes, the last that started decides.
func (u *Unpacker) declareTables(ctx context.Context) (Tables, error) { return u.tables(ctx, true) }

// currentTables returns every version of the route table.
func (u *Unpacker) currentTables(ctx context.Context) (Tables, error) { return u.tables(ctx, false) }

// Overruled reports whether another instance, which was started later, has
// declared other routes than this one's: they hold.
func (u *Unpacker) Overruled(ctx context.Context) (bool, error) {
	v, err := u.currentTables(ctx)
	return err == nil && !v[len(v)-1].Table.same(u.cfg.Routes), err
}

func (u *Unpacker) tables(ctx context.Context, declare bool) (Tables, error) {
	s := saved[tablesValue]{kv: u.kv, key: keyTables}
	for {
		if _, err := s.load(ctx); err != nil {
			return nil, err
		}
		info, err := u.cfg.Store.Info(ctx, u.ledger)
		if err != nil {
			return nil, err
		}
		v := s.val
		if v.Incarnation != info.Incarnation {
			v = tablesValue{Incarnation: info.Incarnation}
		}
		switch n := len(v.Versions); {
		case n == 0:
			v.Versions = Tables{{From: 0, Table: u.cfg.Routes}}
		case !declare || v.Versions[n-1].Table.same(u.cfg.Routes):
			return v.Versions, nil
		default:
			v.Versions = append(v.Versions.since(info.First), Version{From: info.Last + 1, Table: u.cfg.Routes})
			u.cfg.Log.Info("routes changed", "from_block", info.Last+1)
		}
		err = s.store(ctx, v)
		if err == nil {
			return v.Versions, nil
		}
		if !errors.Is(err, errConflict) {
			return nil, err
		}
	}
}

// Behind returns how many blocks of the ledger a stream has not got yet, by its
// checkpoint, before anything runs; of a stream whose routes are gone, of those
// that are its. 0 if there is no ledger, or nothing was ever unpacked into it.
func Behind(ctx context.Context, s *store.Store, stream string) (uint64, error) {
	kv, err := s.KV(ctx, store.HubBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	info, err := s.Info(ctx, store.Blocks)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	e := saved[entry]{kv: kv, key: keyCheckpoint(stream)}
	found, err := e.load(ctx)
	if err != nil || !found || e.val.Incarnation != info.Incarnation {
		return 0, err
	}
	at := e.val.Position
	if e.val.Walk != nil {
		at = e.val.Then
	}
	t := saved[tablesValue]{kv: kv, key: keyTables}
	if _, err := t.load(ctx); err != nil {
		return 0, err
	}
	end := info.Last + 1
	if n := t.val.Versions.End(stream); n > 0 && t.val.Incarnation == info.Incarnation {
		end = min(end, n)
	}
	return end - min(at.Block, end), nil
}
