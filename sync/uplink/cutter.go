package uplink

import (
	"fmt"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Cutter cuts blocks to what a hub lacks and takes. The zero value is ready; the
// codec, some megabytes, is made when it is first needed.
type Cutter struct {
	dec *wire.Decoder
	enc *wire.Encoder
}

// Fit hands over the part r of a block with header h, in order, in as many
// pieces as a limit of so many bytes asks for. On an error everything before it
// was handed over. A piece that is the whole block is the block itself.
func (c *Cutter) Fit(block []byte, h *wire.Header, r wire.Range, limit int, each func(r wire.Range, body []byte)) error {
	body := block
	if r != h.Range() {
		var err error
		if body, err = c.cut(block, r); err != nil {
			return err
		}
	}
	if len(body) <= limit {
		each(r, body)
		return nil
	}
	if r.Len() == 1 {
		return fmt.Errorf("message %s/%d takes %d bytes, the hub accepts %d: raise its max payload", h.Flow, r.First, len(body), limit)
	}
	mid := r.First + r.Len()/2
	if err := c.Fit(block, h, wire.Range{First: r.First, Last: mid - 1}, limit, each); err != nil {
		return err
	}
	return c.Fit(block, h, wire.Range{First: mid, Last: r.Last}, limit, each)
}

func (c *Cutter) cut(block []byte, r wire.Range) ([]byte, error) {
	if c.dec == nil {
		c.dec, c.enc = wire.NewDecoder(), wire.NewEncoder(wire.Fast)
	}
	return wire.Cut(c.dec, c.enc, block, r)
}
