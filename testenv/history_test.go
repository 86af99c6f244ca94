package testenv

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// run is a history of n good messages, which the cases below then spoil.
func run(n int) (pub []Published, got []Stored) {
	for i := 1; i <= n; i++ {
		p := Published{Device: "d", Source: "s", N: i, Subject: "a.b", Lane: wire.Normal,
			Headers: []wire.Pair{{Key: "Unit", Value: "C"}}, Payload: fmt.Append(nil, "m", i)}
		pub = append(pub, p)
		got = append(got, Stored{Device: "d", Subject: "a.b", Receipt: Receipt{"e", "normal", uint64(i)}, StreamSeq: uint64(i),
			Headers: map[string][]string{"Unit": {"C"}, "Fieldpost-Seq": {fmt.Sprint(i)}}, Payload: p.Payload})
	}
	return pub, got
}

func check(pub []Published, got []Stored, gaps ...Gap) (Counts, error) {
	h := NewHistory()
	for i, p := range pub {
		h.Sent(p)
		h.Acked(p, Receipt{"e", "normal", uint64(i + 1)})
	}
	for _, s := range got {
		h.Stored(s)
	}
	for _, g := range gaps {
		h.Gap(g)
	}
	return h.Check()
}

func TestHistoryFindsEachFault(t *testing.T) {
	tests := map[string]struct {
		spoil func(*[]Stored)
		want  string // "" means clean
	}{
		"good":             {func(*[]Stored) {}, ""},
		"lost":             {func(s *[]Stored) { *s = append((*s)[:3], (*s)[4:]...) }, "1 lost"},
		"lost at the end":  {func(s *[]Stored) { *s = (*s)[:9] }, "1 lost"},
		"same number":      {func(s *[]Stored) { (*s)[4].Receipt.Seq = 4 }, "duplicated"},
		"stored twice":     {func(s *[]Stored) { d := (*s)[2]; d.Receipt.Seq = 11; *s = append(*s, d) }, "duplicated"},
		"swapped":          {func(s *[]Stored) { (*s)[4], (*s)[5] = (*s)[5], (*s)[4] }, "reordered"},
		"payload changed":  {func(s *[]Stored) { (*s)[4].Payload = []byte("x") }, "invented"},
		"subject changed":  {func(s *[]Stored) { (*s)[4].Subject = "a.c" }, "changed"},
		"header dropped":   {func(s *[]Stored) { (*s)[4].Headers = nil }, "changed"},
		"header added":     {func(s *[]Stored) { (*s)[4].Headers["X"] = []string{"1"} }, "changed"},
		"another number":   {func(s *[]Stored) { (*s)[9].Receipt.Seq = 20 }, "changed"},
		"another lane":     {func(s *[]Stored) { (*s)[9].Receipt.Lane = "bulk" }, "changed"},
		"all of it absent": {func(s *[]Stored) { *s = nil }, "10 lost"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pub, got := run(10)
			tt.spoil(&got)
			c, err := check(pub, got)
			if tt.want == "" && err != nil {
				t.Fatalf("a clean run is blamed: %v (%v)", err, c)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Fatalf("want %q, got %v", tt.want, err)
			}
		})
	}
}

func TestHistoryGapExcusesOnlyWhatItCovers(t *testing.T) {
	pub, got := run(10)
	got = append(got[:3], got[5:]...) // 4 and 5 are missing
	gap := Gap{Device: "d", Epoch: "e", Lane: "normal", First: 4, Last: 4, Reason: "ttl"}
	if _, err := check(pub, got, gap); err == nil || !strings.Contains(err.Error(), "1 lost") {
		t.Fatalf("want 1 lost, got %v", err)
	}
	gap.Last = 5
	if c, err := check(pub, got, gap); err != nil || c.Gone != 2 {
		t.Fatalf("want 2 gone, got %v, %v", c, err)
	}
	gap.Reason = wire.ReasonFailedCommit.String() // what was acked cannot have failed to commit
	if _, err := check(pub, got, gap); err == nil {
		t.Fatal("an acked message was excused by a failed commit")
	}
}
