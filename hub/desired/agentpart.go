package desired

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// agentMembers are the members of "agent" that agents know, with the kind of each
// value. Values are the agent's to judge: only what every agent would refuse is
// refused here.
var agentMembers = object{
	"log":   object{"level": text},
	"link":  object{"class": text, "max_rate": scalar, "flush": scalar, "daily_bytes": scalar, "windows": list},
	"lanes": list,
}

// kind is what a value may be.
type kind string

const (
	text   kind = "a text"
	scalar kind = "a text or a number"
	list   kind = "a list"
)

// checkAgent looks at the agent's own part of a document. A null is well
// everywhere: it takes away what another document says.
func checkAgent(doc object) error {
	v, ok := doc["agent"]
	if !ok || v == nil {
		return nil
	}
	return checkMember("agent", v, agentMembers)
}

func checkMember(path string, v, want any) error {
	if v == nil {
		return nil
	}
	if k, ok := want.(kind); ok {
		if !k.takes(v) {
			return fmt.Errorf("%s is not %s", path, k)
		}
		return nil
	}
	known := want.(object)
	o, ok := v.(object)
	if !ok {
		return fmt.Errorf("%s is not an object", path)
	}
	for _, name := range slices.Sorted(maps.Keys(o)) {
		below, ok := known[name]
		if !ok {
			return fmt.Errorf("%s.%.80s is not known: there are %s", path, name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		if err := checkMember(path+"."+name, o[name], below); err != nil {
			return err
		}
	}
	return nil
}

func (k kind) takes(v any) bool {
	switch v.(type) {
	case string:
		return k != list
	case []any:
		return k == list
	case object, bool:
		return false
	}
	return k == scalar // a number
}
