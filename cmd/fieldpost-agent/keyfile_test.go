package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
)

func TestParseKeys(t *testing.T) {
	one, two, three := bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{0xfe}, 24), bytes.Repeat([]byte{3}, 32)
	keys, err := parseKeys("# new\n" + hex.EncodeToString(one) + "\r\n\n  " + base64.StdEncoding.EncodeToString(two) +
		"  \n" + base64.RawURLEncoding.EncodeToString(three))
	if err != nil || len(keys) != 3 || !bytes.Equal(keys[0], one) || !bytes.Equal(keys[1], two) || !bytes.Equal(keys[2], three) {
		t.Fatal(keys, err)
	}
	keys, err = parseKeys("none\n" + hex.EncodeToString(one))
	if err != nil || len(keys) != 2 || keys[0] != nil || !bytes.Equal(keys[1], one) {
		t.Fatal(keys, err)
	}
	for text, want := range map[string]string{
		"":                                 "no key",
		"# only\n":                         "no key",
		"hunter2hunter2hunter2\n":          "line 1",
		hex.EncodeToString(one) + "\nx":    "line 2",
		hex.EncodeToString(one[:15]):       "line 1",
		hex.EncodeToString(one) + "\nnone": "line 2",
	} {
		_, err := parseKeys(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error tells the key: %v", err)
		}
	}
}
