package commands

import (
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// A device whose log was damaged asks from the start and reports what is still
// there: that it asks for a command does not say that it does not have it.
func TestWhatIsReportedIsThere(t *testing.T) {
	for name, end := range map[string]func(w *world, c *Commands){
		"cancelled": func(w *world, c *Commands) {
			if _, err := c.Cancel(t.Context(), "c1"); err != nil {
				t.Fatal(err)
			}
		},
		"expired": func(w *world, _ *Commands) { w.later(2 * time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.instance()
			d := w.device("dev1")
			w.send(c, "dev1", "c1")
			d.until(c)
			end(w, c)
			d.after = 0
			d.report("c1", wire.CommandDelivered) // a program has it
			d.ask(c)
			if s := w.state("dev1", "c1"); s != wire.CommandDelivered {
				t.Fatalf("%s after the device has said that it has it", s)
			}
			d.report("c1", wire.CommandAcked)
			d.until(c)
			if s := w.state("dev1", "c1"); s != wire.CommandAcked {
				t.Errorf("%s, but it was acked", s)
			}
		})
	}
}
