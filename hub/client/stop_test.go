package client

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestAStopCostsOneDelivery: what comes while a call ends is given back once, not
// again and again through the request that still stands.
func TestAStopCostsOneDelivery(t *testing.T) {
	w := newWorld(t)
	c := w.client()
	for name, call := range map[string]func(ctx context.Context, got func(nth int) error) error{
		"nothing runs": func(ctx context.Context, got func(int) error) error {
			return c.Consume(ctx, ConsumerConfig{Group: "idle"}, func(_ context.Context, m *Message) error { return got(m.Deliveries) })
		},
		"a handler fails at the stop": func(ctx context.Context, got func(int) error) error {
			return c.Consume(ctx, ConsumerConfig{Group: "fails"}, func(ctx context.Context, m *Message) error {
				if err := got(m.Deliveries); err != nil {
					return err
				}
				<-ctx.Done()
				return errors.New("interrupted")
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			const stops = 3
			done := errors.New("done")
			for range stops {
				got := make(chan int, 1000)
				r := w.run(func(ctx context.Context) error {
					return call(ctx, func(nth int) error { got <- nth; return nil })
				})
				w.edge(1, 1)
				receive(t, "a message: the group is read", got)
				more := make(chan struct{})
				go func() {
					defer close(more)
					w.edge(2, 10)
				}()
				if err := r.stop(); err != nil {
					t.Fatal(err)
				}
				<-more
			}
			most := 0
			seen := make(chan int, 1000)
			r := w.run(func(ctx context.Context) error {
				return call(ctx, func(nth int) error { seen <- nth; return done })
			})
			for {
				select {
				case nth := <-seen:
					most = max(most, nth)
					continue
				case <-time.After(2 * time.Second):
				}
				break
			}
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			if most > stops+1 {
				t.Errorf("delivery %d after %d stops", most, stops)
			}
		})
	}
}
