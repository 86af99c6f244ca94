package hub

import "fmt"

// lost is, by route, how many blocks somebody removed from the ledger before
// they were unpacked.
func (p *parts) lost() []uint64 {
	out := make([]uint64, len(p.hub.cfg.Routes))
	for _, s := range p.unpack.Status() {
		for i, r := range p.hub.cfg.Routes {
			if !r.packed() && r.Stream == s.Stream {
				out[i] = s.Lost.Blocks
			}
		}
	}
	return out
}

// lossNotes says where blocks are missing.
func (m *monitor) lossNotes() (out []string) {
	for _, s := range m.parts.unpack.Status() {
		if s.Lost.Blocks == 0 {
			continue
		}
		where := ""
		if s.Lost.First > 0 {
			where = fmt.Sprintf(", the newest %d to %d", s.Lost.First, s.Lost.Last)
		}
		out = append(out, fmt.Sprintf("blocks that were removed from BLOCKS before stream %s had them: %d%s; what they held for it is gone. Only the hub may purge BLOCKS", s.Stream, s.Lost.Blocks, where))
	}
	return out
}

// lostBlocks shows lost, for each stream that is unpacked into.
func (m *hubMetrics) lostBlocks(cfg Config) {
	for i, r := range cfg.Routes {
		if r.packed() {
			continue
		}
		m.gauge(fmt.Sprintf("fieldpost_hub_unpack_lost_blocks_total{route=%q}", r.Stream), func() float64 {
			if i < len(m.seen.lost) {
				return float64(m.seen.lost[i])
			}
			return 0
		})
	}
}
