package conf

import (
	"bytes"
	"os"
	"testing"
)

// TestPackagedExamplesAreTheDefaults: the files that packages install are the
// ones that `config example` prints, and pass `config check`.
func TestPackagedExamplesAreTheDefaults(t *testing.T) {
	for name, want := range map[string][]byte{"agent.yaml": AgentExample, "hub.yaml": HubExample} {
		file := "../../../packaging/examples/" + name
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs from what `config example` prints; copy %s there", file, name)
		}
	}
	if _, _, err := LoadAgent(Source{File: "../../../packaging/examples/agent.yaml"}); err != nil {
		t.Error(err)
	}
	if _, _, err := LoadHub(Source{File: "../../../packaging/examples/hub.yaml"}); err != nil {
		t.Error(err)
	}
}
