package uplink

import (
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestStreamsAreBounded: a device that keeps the hub busy with its stream is
// stopped, by whichever of its sessions; one that keeps to what senders do is not.
func TestStreamsAreBounded(t *testing.T) {
	r := NewReceiver(ReceiverConfig{HubID: "hub1"})
	now := time.Unix(1_800_000_000, 0)
	d := &recvDevice{}
	feed := func(frames, size int, every time.Duration) (refused int) {
		for range frames {
			now = now.Add(every)
			if r.now = now; !r.mayStream(d) {
				refused++
				continue
			}
			d.streamed += size
		}
		return refused
	}
	second := slowPace * streamRate
	if n := feed(3600, second, time.Second); n > 0 {
		t.Errorf("what a sender may send is refused %d times in an hour", n)
	}
	if n := feed(3, streamBurst, 0); n > 0 {
		t.Errorf("so is a burst")
	}
	if n := feed(1000, wire.MaxStreamRaw, time.Millisecond); n < 900 {
		t.Errorf("of 1,000 frames of %d bytes in a second %d are refused", wire.MaxStreamRaw, n)
	}
	now = now.Add(time.Hour)
	if n := feed(1, second, time.Second); n > 0 {
		t.Error("an hour later it is still refused")
	}
}
