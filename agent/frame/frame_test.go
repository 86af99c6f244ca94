package frame

import (
	"bytes"
	"reflect"
	"testing"
)

func TestPublishRoundTrip(t *testing.T) {
	for name, p := range map[string]Publish{
		"plain":         {Subject: "a.b", Fields: Fields{Payload: []byte("x")}},
		"empty payload": {Subject: "a"},
		"all": {
			Subject: "a", ID: "i", Headers: []Pair{{"k", "v"}, {"", ""}},
			Fields: Fields{HasLane: true, Lane: 2, TTL: 1, HasTime: true, Time: -5, Hub: 7, Payload: []byte("p")},
		},
		"memory": {Subject: "a", Fields: Fields{Memory: true, Payload: []byte("p")}},
	} {
		t.Run(name, func(t *testing.T) {
			enc := AppendPublish([]byte("before"), &p)[len("before"):]
			typ, body, rest, need, err := Next(enc, 1<<20)
			if err != nil || need != 0 || typ != TypePublish || len(rest) != 0 {
				t.Fatalf("Next: %v %v %d %v", typ, rest, need, err)
			}
			var got View
			if err := ParsePublish(body, &got); err != nil {
				t.Fatal(err)
			}
			if hs := got.Headers(); !reflect.DeepEqual(hs, p.Headers) {
				t.Errorf("headers %v, want %v", hs, p.Headers)
			}
			if again := encodeAgain(&got); !bytes.Equal(again, enc) {
				t.Errorf("encoded again: %x, want %x", again, enc)
			}
		})
	}
}

func encodeAgain(v *View) []byte {
	return AppendPublish(nil, &Publish{Fields: v.Fields, Subject: string(v.Subject), ID: string(v.ID), Headers: v.Headers()})
}

func TestNext(t *testing.T) {
	whole := AppendError(nil, Error{First: 1, Code: "c"})
	for i := range whole {
		if _, _, _, need, err := Next(whole[:i], 100); need <= i || err != nil {
			t.Fatalf("%d bytes: need %d, %v", i, need, err)
		}
	}
	if _, _, _, _, err := Next([]byte{0, 0, 0, 0, 1}, 100); err == nil {
		t.Error("a frame of no bytes passed")
	}
	if _, _, _, _, err := Next([]byte{101, 0, 0, 0, 1}, 100); err == nil {
		t.Error("a frame over the limit passed")
	}
}

func TestAnswersRoundTrip(t *testing.T) {
	for _, want := range []Receipt{
		{First: 1, Count: 1, Lane: 1, Epoch: [8]byte{1, 2}, Seq: 1 << 60},
		{First: 9, Count: 300, Duplicate: true, Hub: true, Seq: 4},
		{First: 1 << 40, Count: 2, Memory: true, Lane: 2},
	} {
		_, body, _, _, _ := Next(AppendReceipt(nil, want), 100)
		if got, err := ParseReceipt(body); err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
	want := Error{First: 3, Count: 0, Code: "quota", Retry: 5, Detail: "later"}
	_, body, _, _, _ := Next(AppendError(nil, want), 100)
	if got, err := ParseError(body); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(AppendPublish(nil, &Publish{Subject: "a", ID: "i", Headers: []Pair{{"k", "v"}}, Fields: Fields{Payload: []byte("p")}}))
	f.Add(AppendReceipt(nil, Receipt{First: 1, Count: 2, Seq: 3}))
	f.Add(AppendError(nil, Error{First: 1, Code: "c", Detail: "d"}))
	f.Add(AppendHello(nil, Hello{Version: "1", Device: "d"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		typ, body, rest, need, err := Next(data, 1<<16)
		if err != nil || need != 0 {
			return
		}
		frame := data[:len(data)-len(rest)]
		var again []byte
		switch typ {
		case TypePublish:
			var v View
			if ParsePublish(body, &v) != nil {
				return
			}
			again = encodeAgain(&v)
		case TypeReceipt:
			x, err := ParseReceipt(body)
			if err != nil {
				return
			}
			again = AppendReceipt(nil, x)
		case TypeError:
			x, err := ParseError(body)
			if err != nil {
				return
			}
			again = AppendError(nil, x)
		default:
			ParseHello(body)
			return
		}
		if !bytes.Equal(again, frame) {
			t.Fatalf("%x parsed and encoded again is %x", frame, again)
		}
	})
}
