package hub

import (
	"strings"
	"testing"

	"github.com/fieldpost/fieldpost/hub/registry"
)

// A bound that is reached, and a list that is not complete, are said.
func TestDeviceNotes(t *testing.T) {
	for _, tt := range []struct {
		n    registry.Numbers
		want string // of the one note; empty: there is none
	}{
		{registry.Numbers{Online: 1, Offline: 2, Max: 10}, ""},
		{registry.Numbers{Online: 1, Offline: 2, Max: 10, Loading: true}, "3 so far"},
		{registry.Numbers{Online: 1, Offline: 2, Max: 3}, "it holds 3"},
	} {
		got := deviceNotes(tt.n)
		if tt.want == "" && len(got) != 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
			t.Errorf("%+v: %q", tt.n, got)
		}
	}
}
