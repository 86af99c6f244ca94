package main

import "testing"

func TestTailShowsControlCharacters(t *testing.T) {
	for in, want := range map[string]string{
		"red\x1b[31m\tx\ny": `red\x1b[31m	x\ny`,
		"21.5 °C":           "21.5 °C",
		"\xff\x1b":          "(2 bytes) ff1b",
	} {
		if got := payload([]byte(in)); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestWhereTailBegins(t *testing.T) {
	for from, good := range map[string]bool{
		"": true, "new": true, "first": true, "7": true, "2026-05-01T06:00:00Z": true,
		"0": false, "-1": false, "yesterday": false, "2026-05-01": false,
	} {
		if err := checkFrom(from); (err == nil) != good {
			t.Errorf("%q: %v", from, err)
		}
	}
}
