package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Limits of what a device may say of itself. Devices are not trusted.
const (
	maxHeartbeat = 16 << 10
	maxText      = 64
	maxLabels    = 32
	maxLabel     = 256
	maxEvery     = 24 * 60 * 60
	defaultEvery = 60
)

// parseHeartbeat decodes and bounds a heartbeat.
func parseHeartbeat(data []byte) (wire.Heartbeat, error) {
	var b wire.Heartbeat
	if len(data) > maxHeartbeat {
		return b, fmt.Errorf("%d bytes; the limit is %d", len(data), maxHeartbeat)
	}
	if err := json.Unmarshal(data, &b); err != nil {
		return b, err
	}
	for _, s := range []string{b.Version, b.Process, b.Class} {
		if !printable(s, maxText) {
			return b, fmt.Errorf("version, process or class is not up to %d printable characters", maxText)
		}
	}
	if b.Epoch != "" {
		if _, err := wire.ParseEpoch(b.Epoch); err != nil {
			return b, err
		}
	}
	switch {
	case b.Every == 0:
		b.Every = defaultEvery
	case b.Every < 0 || b.Every > maxEvery:
		return b, fmt.Errorf("every is %d seconds; it can be 1 to %d", b.Every, maxEvery)
	}
	if b.DiskUsed < 0 || b.DiskMax < 0 {
		return b, errors.New("disk is negative")
	}
	if e := b.Error; e != nil && !printable(e.Text, maxLabel) {
		return b, fmt.Errorf("error is not up to %d printable characters", maxLabel)
	}
	// What a newer agent reports and this hub does not know is left out.
	maps.DeleteFunc(b.Dropped, func(reason string, _ uint64) bool { return !reasons[reason] })
	maps.DeleteFunc(b.Backlog, func(lane string, v wire.LaneBacklog) bool {
		_, err := wire.ParseLane(lane)
		return err != nil || v.Bytes < 0
	})
	return b, checkLabels(b.Labels)
}

var reasons = func() map[string]bool {
	m := map[string]bool{}
	for _, r := range wire.Reasons() {
		m[r.String()] = true
	}
	return m
}()

func checkLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return fmt.Errorf("%d labels; the limit is %d", len(labels), maxLabels)
	}
	for k, v := range labels {
		if k == "" || !printable(k, maxText) || !printable(v, maxLabel) {
			return fmt.Errorf("a label is not up to %d and %d printable characters", maxText, maxLabel)
		}
	}
	return nil
}

func printable(s string, limit int) bool {
	if len(s) > limit || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// millis reads an untrusted Unix time; zero if it is none.
func millis(ms int64) time.Time {
	const year3000 = 32_503_680_000_000
	if ms <= 0 || ms > year3000 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
