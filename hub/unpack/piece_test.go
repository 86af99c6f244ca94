package unpack

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

func TestPieces(t *testing.T) {
	msg := func(seq uint64, subject, piece, data string) store.Stored {
		h := nats.Header{}
		if piece != "" {
			h[hdrPiece] = []string{piece}
		}
		return store.Stored{Seq: seq, Subject: subject, Header: h, Data: []byte(data)}
	}
	for name, c := range map[string]struct {
		in   []store.Stored
		want string // <seq>:<data> of what is whole, ! after what is broken
	}{
		"whole":            {[]store.Stored{msg(1, "a", "", "x"), msg(2, "a", "", "y")}, "1:x 2:y "},
		"three":            {[]store.Stored{msg(4, "a", "1/3", "x"), msg(5, "a", "2/3", "y"), msg(6, "a", "3/3", "z"), msg(7, "a", "", "w")}, "4:xyz 7:w "},
		"no beginning":     {[]store.Stored{msg(5, "a", "2/3", "y"), msg(6, "a", "3/3", "z"), msg(7, "a", "", "w")}, "6:z! 7:w "},
		"no middle":        {[]store.Stored{msg(4, "a", "1/3", "x"), msg(6, "a", "3/3", "z")}, "6:z! "},
		"no end":           {[]store.Stored{msg(4, "a", "1/3", "x"), msg(5, "a", "2/3", "y"), msg(7, "a", "", "w")}, "7:w "},
		"two beginnings":   {[]store.Stored{msg(4, "a", "1/2", "x"), msg(5, "a", "1/2", "y"), msg(6, "a", "2/2", "z")}, "5:yz "},
		"another's middle": {[]store.Stored{msg(4, "a", "1/2", "x"), msg(5, "b", "2/2", "y")}, "5:y! "},
		"another length":   {[]store.Stored{msg(4, "a", "1/2", "x"), msg(5, "a", "2/3", "y"), msg(6, "a", "3/3", "z")}, "6:z! "},
		"nonsense":         {[]store.Stored{msg(4, "a", "none", "x"), msg(5, "a", "0/2", "x"), msg(6, "a", "3/2", "x"), msg(7, "a", "1/1", "x")}, "4:x! 5:x! 6:x! 7:x! "},
	} {
		var p pieces
		got := ""
		for _, m := range c.in {
			b, whole, err := p.add(m)
			if whole {
				got += string(rune('0'+b.Seq)) + ":" + string(b.Data)
				if err != nil {
					got += "!"
				}
				got += " "
			}
			if err != nil && !errors.Is(err, wire.ErrCorrupt) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got != c.want || p.open() {
			t.Errorf("%s: %q, want %q; open: %v", name, got, c.want, p.open())
		}
	}
}

// Pieces of more than a block are broken, and nobody keeps them.
func TestPiecesAreBounded(t *testing.T) {
	data := make([]byte, 1<<20)
	var p pieces
	for i := 1; i <= wire.MaxParts; i++ {
		_, whole, err := p.add(store.Stored{Seq: uint64(i), Subject: "a", Header: nats.Header{hdrPiece: {wire.PartName(i, wire.MaxParts)}}, Data: data})
		if cap(p.whole.Data) > 2*wire.MaxBlock {
			t.Fatalf("at piece %d %d bytes are kept", i, cap(p.whole.Data))
		}
		if last := i == wire.MaxParts; whole != last || errors.Is(err, wire.ErrCorrupt) != last {
			t.Fatalf("piece %d: whole %v, %v", i, whole, err)
		}
	}
}
