package uplink

import "github.com/fieldpost/fieldpost/sync/wire"

// Cutter cuts blocks to what a hub lacks and takes. The zero value is ready; the
// codec, some megabytes, is made when it is first needed.
type Cutter struct {
	dec *wire.Decoder
	enc *wire.Encoder
}

// Fit hands over the part r of a block with header h, in order, in as many
// pieces as a limit of so many bytes asks for; one message may be above it. On
// an error everything before it was handed over. A piece that is the whole block
// is the block itself.
func (c *Cutter) Fit(block []byte, h *wire.Header, r wire.Range, limit int, each func(r wire.Range, body []byte)) error {
	body := block
	if r != h.Range() {
		var err error
		if body, err = c.cut(block, r); err != nil {
			return err
		}
	}
	if len(body) <= limit || r.Len() == 1 {
		each(r, body)
		return nil
	}
	mid := r.First + r.Len()/2
	if err := c.Fit(block, h, wire.Range{First: r.First, Last: mid - 1}, limit, each); err != nil {
		return err
	}
	return c.Fit(block, h, wire.Range{First: mid, Last: r.Last}, limit, each)
}

// decode returns the messages of a block, in m.
func (c *Cutter) decode(m *wire.Memory, block []byte) (*wire.Block, error) {
	c.ready()
	return c.dec.DecodeTo(m, block)
}

func (c *Cutter) cut(block []byte, r wire.Range) ([]byte, error) {
	c.ready()
	return wire.Cut(c.dec, c.enc, block, r)
}

func (c *Cutter) ready() {
	if c.dec == nil {
		c.dec, c.enc = wire.NewDecoder(), wire.NewEncoder(wire.Fast)
	}
}
