package testenv

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// fleetSize is how many agents lose their hub at one moment.
const fleetSize = 500

// TestFleetReturns: a hub that is killed, or stopped, and comes back while 500
// agents wait for it is not stormed: they return spread over time, none is lost,
// and the hub answers others meanwhile.
func TestFleetReturns(t *testing.T) {
	short(t)
	w := NewWorld(t, "")
	f := w.StartFleet(fleetSize)
	allUp := func(limit time.Duration) {
		t.Helper()
		Eventually(t, limit, "everybody is back", func() error {
			if n := f.Up(); n < fleetSize {
				return fmt.Errorf("%d of %d", n, fleetSize)
			}
			return nil
		})
	}
	allUp(60 * time.Second)
	f.Publish()
	for name, end := range map[string]func(){"killed": w.Hub.Kill, "stopped": func() { w.Hub.Stop(30 * time.Second) }} {
		end()
		ended := time.Now()
		f.Publish()
		Eventually(t, 30*time.Second, "the longest pause between attempts is reached", func() error {
			if dials, _ := f.Since(ended); len(dials) < 4*fleetSize {
				return fmt.Errorf("%d attempts of %d agents", len(dials), fleetSize)
			}
			return nil
		})
		began := time.Now()
		w.Hub.Start()
		w.WaitHub()
		ready := time.Now()
		stop, asked := make(chan struct{}), make(chan askedHub)
		go func() { asked <- w.askHub(stop) }()
		allUp(60 * time.Second)
		close(stop)
		answers := <-asked
		dials, opens := f.Since(began)
		t.Logf("%s: ready after %v, all back %v after that; sessions per 250 ms %v, dials %v; /healthz: %v",
			name, ready.Sub(began).Round(time.Millisecond), time.Since(ready).Round(time.Millisecond),
			histogram(opens, began), histogram(dials, began), answers)
		for i, n := range histogram(dials, began) { // a third is what the longest pause and chance make of it
			if n > fleetSize*6/10 {
				t.Errorf("%s: %d agents dialled in the 250 ms after %d ms", name, n, 250*i)
			}
		}
		if answers.err != nil {
			t.Errorf("%s: the hub did not answer meanwhile: %v", name, answers.err)
		}
		f.Publish()
	}
	if c := w.inHub("everything is in EDGE"); c.Stored != 5*fleetSize {
		t.Fatalf("%v", c)
	}
}

// histogram counts moments per 250 ms.
func histogram(ts []time.Time, from time.Time) (out []int) {
	for _, at := range ts {
		i := int(at.Sub(from) / (250 * time.Millisecond))
		for len(out) <= i {
			out = append(out, 0)
		}
		out[max(i, 0)]++
	}
	return out
}

// askedHub is how the hub answered.
type askedHub struct {
	n           int
	mean, worst time.Duration
	err         error
}

func (a askedHub) String() string {
	return fmt.Sprintf("%d answers, mean %v, worst %v", a.n, a.mean.Round(100*time.Microsecond), a.worst.Round(100*time.Microsecond))
}

// askHub asks the hub for its health, again and again, until stop is closed.
func (w *World) askHub(stop <-chan struct{}) (out askedHub) {
	c := http.Client{Timeout: 30 * time.Second}
	defer c.CloseIdleConnections()
	var total time.Duration
	var faults []string
	for {
		began := time.Now()
		if err := ok(c.Get("http://" + w.HTTP + "/healthz")); err != nil {
			faults = append(faults, err.Error())
		}
		took := time.Since(began)
		total += took
		out.n++
		out.worst = max(out.worst, took)
		select {
		case <-stop:
			out.mean = total / time.Duration(out.n)
			if faults != nil {
				out.err = fmt.Errorf("%d of %d: %s", len(faults), out.n, strings.Join(faults[:min(3, len(faults))], "; "))
			}
			return out
		case <-time.After(20 * time.Millisecond):
		}
	}
}
