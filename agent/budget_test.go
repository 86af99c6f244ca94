package agent

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
)

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(10)
		if !b.take(7) || b.take(4) || !b.take(3) {
			t.Error("take")
		}
		got := make(chan int64, 3)
		wait := func(ctx context.Context, n int64) {
			go func() {
				if b.wait(ctx, n) != nil {
					n = -n
				}
				got <- n
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		wait(ctx, 9)
		wait(t.Context(), 2)
		wait(t.Context(), 1)
		b.give(3)
		synctest.Wait()
		if len(got) != 0 {
			t.Error("somebody overtook the one who waits longest")
		}
		cancel()
		synctest.Wait()
		all := []int64{<-got, <-got, <-got} // three goroutines: in any order
		if slices.Sort(all); !slices.Equal(all, []int64{-9, 1, 2}) {
			t.Errorf("%d", all)
		}
		b.give(10)
		if b.used != 0 {
			t.Errorf("%d in use", b.used)
		}
	})
}
