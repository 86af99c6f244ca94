package main

import (
	"slices"
	"strings"
	"testing"
)

func TestNegativeNumbersAreData(t *testing.T) {
	for in, want := range map[string]string{
		"publish a -5":                     "publish a -- -5",
		"publish a -5.25e-3 --lane urgent": "publish a --lane urgent -- -5.25e-3",
		"-c f.yaml publish --json a -.5":   "-c f.yaml publish --json a -- -.5",
		"publish --lane urgent a -5":       "publish --lane urgent a -- -5",
		"publish a --id -5":                "publish a --id -5",
		"publish a -c -5":                  "publish a -c -5",
		"publish a --ttl -1s":              "publish a --ttl -1s",
		"publish -5 a":                     "publish -5 a",
		"publish a -- -5":                  "publish a -- -5",
		"publish a -5 --":                  "publish a -- -5",
		"publish a -":                      "publish a -",
		"publish a -x":                     "publish a -x",
		"tap a -5":                         "tap a -5",
		"publsh a -5":                      "publsh a -5",
	} {
		if got := strings.Join(negativeData(root(), strings.Fields(in)), " "); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
	args := []string{"publish", "a", "-5", "--json"}
	negativeData(root(), args)
	if !slices.Equal(args, []string{"publish", "a", "-5", "--json"}) {
		t.Errorf("the caller's arguments were changed: %v", args)
	}
}
