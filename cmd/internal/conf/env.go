package conf

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// serviceLink matches what Kubernetes sets for a Service named like a program,
// after the prefix: FIELDPOST_HUB_SERVICE_HOST, FIELDPOST_HUB_PORT_4222_TCP_ADDR.
var serviceLink = regexp.MustCompile(`(^|_)(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// Variable is the name that sets a key: spool.max_bytes → PREFIX_SPOOL_MAX_BYTES.
func Variable(prefix, key string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// environment lays the variables that begin with prefix over dst.
func (d *decoder) environment(prefix string, environ []string, dst any) {
	known := map[string]func(string){}
	var all []string
	leaves(reflect.ValueOf(dst).Elem(), "", func(key string, v reflect.Value, _ reflect.StructTag) {
		name := Variable(prefix, key)
		all = append(all, name)
		known[name] = func(value string) { d.variable(name, value, key, v) }
	})
	environ = slices.Clone(environ)
	slices.Sort(environ)
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		rest, ours := strings.CutPrefix(name, prefix)
		if !ours {
			continue
		}
		if set := known[name]; set != nil {
			set(value)
		} else if !serviceLink.MatchString(rest) {
			d.errs = append(d.errs, Error{name, "", "no such key" + nearest(name, all) + "; `config show` prints all keys"})
		}
	}
}

func nearest(name string, all []string) string {
	if s := suggest(name, all); strings.Contains(s, "did you mean") {
		return s
	}
	var below []string
	for _, k := range all {
		if strings.HasPrefix(k, name+"_") {
			below = append(below, k)
		}
	}
	if below != nil {
		return "; it is a group: set " + strings.Join(below, ", ")
	}
	return ""
}

func (d *decoder) variable(name, value, key string, v reflect.Value) {
	where := d.where
	defer func() { d.where = where }()
	d.where = func(*yaml.Node) string { return name }
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value, Line: 1, Column: 1}
	if k := v.Kind(); k == reflect.Slice || k == reflect.Map {
		var doc yaml.Node
		if !json.Valid([]byte(value)) || yaml.Unmarshal([]byte(value), &doc) != nil || len(doc.Content) != 1 {
			d.bad(n, key, "%s", wantsJSON(k))
			return
		}
		n = doc.Content[0]
		d.where = func(n *yaml.Node) string { return fmt.Sprintf("%s:%d:%d", name, n.Line, n.Column) }
	}
	d.value(n, v, key)
	d.origins[key] = name
}

func wantsJSON(k reflect.Kind) string {
	if k == reflect.Map {
		return `a JSON object is wanted, such as {"site":"north"}`
	}
	return `a JSON list is wanted, such as ["a","b"]`
}
