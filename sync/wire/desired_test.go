package wire

import (
	"strings"
	"testing"
)

func TestDesiredIsChecked(t *testing.T) {
	for name, tt := range map[string]struct {
		in string
		ok bool
	}{
		"none yet":           {`{"hub_id":"h","desired":{}}`, true},
		"applied":            {`{"hub_id":"h","desired":{"version":"7-ab","state":"applied","at":5}}`, true},
		"no state":           {`{"hub_id":"h","desired":{"version":"7-ab"}}`, false},
		"unknown state":      {`{"hub_id":"h","desired":{"version":"7-ab","state":"done"}}`, false},
		"version of a space": {`{"hub_id":"h","desired":{"version":" ","state":"applied"}}`, false},
		"before 1970":        {`{"hub_id":"h","desired":{"version":"7","state":"applied","at":-1}}`, false},
		"reason with a bell": {`{"hub_id":"h","desired":{"version":"7","state":"refused","reason":"\u0007"}}`, false},
	} {
		if _, err := ParseCommandRequest([]byte(tt.in)); (err == nil) != tt.ok {
			t.Errorf("request %s: %v", name, err)
		}
	}
	for name, tt := range map[string]struct {
		in string
		ok bool
	}{
		"settings":   {`{"stream":"s","desired":{"version":"7-ab","document":{"a":1}}}`, true},
		"no version": {`{"stream":"s","desired":{"document":{"a":1}}}`, false},
		"no object":  {`{"stream":"s","desired":{"version":"7","document":[1]}}`, false},
		"nothing":    {`{"stream":"s","desired":{"version":"7"}}`, false},
		"too large":  {`{"stream":"s","desired":{"version":"7","document":{"a":"` + strings.Repeat("x", MaxDesired) + `"}}}`, false},
	} {
		if _, err := ParseCommandReply([]byte(tt.in)); (err == nil) != tt.ok {
			t.Errorf("reply %s: %v", name, err)
		}
	}
}
