package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// maxDepth is how deep objects and lists of a document may be nested.
const maxDepth = 32

// own is the agent's member of a document; nil if there is none. The error says
// why the document is none.
func own(document json.RawMessage) (json.RawMessage, error) {
	if len(document) > wire.MaxDesired {
		return nil, fmt.Errorf("the document has %d bytes; the limit is %d", len(document), wire.MaxDesired)
	}
	if err := checkDepth(document); err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(document, &members); err != nil || members == nil {
		return nil, errors.New("the document is not a JSON object")
	}
	member, ok := members["agent"]
	if !ok {
		return nil, nil
	}
	if len(member) == 0 || member[0] != '{' {
		return nil, errors.New("agent: is not an object")
	}
	return member, nil
}

// checkDepth reads a document without keeping any of it.
func checkDepth(document []byte) error {
	dec := json.NewDecoder(bytes.NewReader(document))
	dec.UseNumber()
	for depth := 0; ; {
		t, err := dec.Token()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("the document is not JSON: %w", err)
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			if depth++; depth > maxDepth {
				return fmt.Errorf("the document is nested more than %d deep", maxDepth)
			}
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}
