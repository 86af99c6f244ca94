package cli

import (
	"fmt"
	"io"
	"time"
)

// Meter shows how many bytes have passed: one line that is overwritten, on a
// terminal only.
type Meter struct {
	w     io.Writer
	what  string
	total int64 // 0: not known
	n     int64
	began time.Time
	shown time.Time
	width int // of the line
}

// NewMeter returns a meter that writes to w. total is 0 if it is not known.
func NewMeter(w io.Writer, what string, total int64) *Meter {
	if !Terminal(w) {
		w = nil
	}
	return &Meter{w: w, what: what, total: total, began: time.Now()}
}

// Write counts b. It never fails.
func (m *Meter) Write(b []byte) (int, error) {
	m.n += int64(len(b))
	if now := time.Now(); m.w != nil && now.Sub(m.shown) >= 200*time.Millisecond {
		m.shown = now
		line := m.what + ": " + Bytes(m.n)
		if m.total > 0 {
			line += fmt.Sprintf(" of %s (%d%%)", Bytes(m.total), 100*min(m.n, m.total)/m.total)
		}
		if s := now.Sub(m.began).Seconds(); s >= 1 {
			line += fmt.Sprintf(", %s/s", Bytes(int64(float64(m.n)/s)))
		}
		fmt.Fprintf(m.w, "\r%-*s", m.width, line)
		m.width = len(line)
	}
	return len(b), nil
}

// End leaves the cursor on a fresh line.
func (m *Meter) End() {
	if m.w != nil && m.width > 0 {
		fmt.Fprintf(m.w, "\r%-*s\r", m.width, "")
		m.width = 0
	}
}
