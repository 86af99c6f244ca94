package spool

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestInspectorBesideEverythingElse: messages come, segments are sealed, the hub
// takes them and they are removed, while somebody looks at all of it.
func TestInspectorBesideEverythingElse(t *testing.T) {
	cfg := small(t, t.TempDir())
	cfg.shape = tiny()
	s := open(t, cfg)
	done := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		defer close(done)
		for i := range 150 {
			r := appendOK(t, s, wire.Normal, msgs(3, "m")...)
			if i%10 == 9 {
				if err := s.Received(r.Flow, wire.Ranges{{First: 1, Last: r.Last - 40*min(1, uint64(i/30))}}); err != nil {
					t.Error(err)
				}
			}
		}
	})
	in, ctx := s.Inspector(), context.Background()
	for _, look := range []func() error{
		func() error { in.Segments(); return nil },
		func() error { return in.Messages(ctx, Query{}, func(*Held) error { return nil }) },
		func() error { return in.Messages(ctx, Query{Newest: true}, func(*Held) error { return nil }) },
		func() error {
			return in.Verify(ctx, func(c Check) error {
				if c.Problem != "" {
					return errors.New(c.Problem)
				}
				return nil
			})
		},
		func() error {
			_, err := in.Export(ctx, io.Discard, wire.ExportHead{Device: "d"}, nil)
			return err
		},
	} {
		work.Go(func() {
			for {
				if err := look(); err != nil {
					t.Error(err)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	work.Wait()
}
