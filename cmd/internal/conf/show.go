package conf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Show writes a configuration as YAML with the origin of each value as a
// comment. Files that hold secrets are named, never read; passwords in addresses
// are hidden.
func Show(cfg any, origins Origins) ([]byte, error) {
	root := &yaml.Node{Kind: yaml.MappingNode}
	groups := map[string]*yaml.Node{"": root}
	leaves(reflect.ValueOf(cfg).Elem(), "", func(key string, v reflect.Value, tag reflect.StructTag) {
		n := node(v, tag)
		n.LineComment = origins[key]
		group, name := split(key)
		g := groupNode(groups, group)
		k := &yaml.Node{Kind: yaml.ScalarNode, Value: name}
		g.Content = append(g.Content, k, n)
	})
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return nil, fmt.Errorf("conf: show: %w", err)
	}
	return out.Bytes(), nil
}

// Shown is Show for machines.
type Shown struct {
	Config  map[string]any `json:"config"` // nested as the file is
	Origins Origins        `json:"origins"`
}

// JSON returns what Show writes as one document.
func JSON(cfg any, origins Origins) Shown {
	root := map[string]any{}
	leaves(reflect.ValueOf(cfg).Elem(), "", func(key string, v reflect.Value, tag reflect.StructTag) {
		m := root
		group, name := split(key)
		for g := range strings.SplitSeq(group, ".") {
			if g == "" {
				break
			}
			next, ok := m[g].(map[string]any)
			if !ok {
				next = map[string]any{}
				m[g] = next
			}
			m = next
		}
		m[name] = plain(v, tag)
	})
	return Shown{root, origins}
}

// Example is the commented example as JSON: what `config example --json` prints.
func Example(text []byte) (json.RawMessage, error) {
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		return nil, fmt.Errorf("conf: example: %w", err)
	}
	return json.Marshal(v)
}

func split(key string) (group, name string) {
	i := strings.LastIndexByte(key, '.')
	return key[:max(i, 0)], key[i+1:]
}

func groupNode(groups map[string]*yaml.Node, path string) *yaml.Node {
	if g := groups[path]; g != nil {
		return g
	}
	above, name := split(path)
	g := &yaml.Node{Kind: yaml.MappingNode}
	parent := groupNode(groups, above)
	parent.Content = append(parent.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, g)
	groups[path] = g
	return g
}

// node is a value as YAML, its keys in the order of the file.
func node(v reflect.Value, tag reflect.StructTag) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Style: yaml.FlowStyle}
	switch p := plain(v, tag).(type) {
	case []any:
		n.Kind = yaml.SequenceNode
		for i := range v.Len() {
			n.Content = append(n.Content, node(v.Index(i), tag))
		}
	case map[string]any:
		n.Kind = yaml.MappingNode
		for i := range v.NumField() {
			f := v.Type().Field(i)
			n.Content = append(n.Content, scalarNode(keyOf(f)), node(v.Field(i), f.Tag))
		}
	case map[string]string:
		n.Kind = yaml.MappingNode
		for _, k := range slices.Sorted(maps.Keys(p)) {
			n.Content = append(n.Content, scalarNode(k), scalarNode(p[k]))
		}
	case string:
		return scalarNode(p)
	default:
		n.Value = fmt.Sprint(p)
	}
	return n
}

func scalarNode(s string) *yaml.Node {
	n := new(yaml.Node)
	n.SetString(s)
	return n
}

// plain turns a value into what both YAML and JSON write the same way.
func plain(v reflect.Value, tag reflect.StructTag) any {
	switch {
	case v.Kind() == reflect.Slice:
		out := make([]any, v.Len())
		for i := range out {
			out[i] = plain(v.Index(i), tag)
		}
		return out
	case v.Kind() == reflect.Struct && !isLeaf(v.Type()):
		out := map[string]any{}
		for i := range v.NumField() {
			out[keyOf(v.Type().Field(i))] = plain(v.Field(i), v.Type().Field(i).Tag)
		}
		return out
	case v.Kind() == reflect.Map, v.Kind() == reflect.Bool, v.Kind() == reflect.Int && !isText(v):
		return v.Interface()
	case tag.Get("secret") == "url":
		return RedactURL(v.String())
	}
	return text(v.Interface())
}

func isText(v reflect.Value) bool {
	_, ok := v.Interface().(interface{ MarshalText() ([]byte, error) })
	return ok
}
