package conf

import (
	"encoding"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Error is one mistake in a configuration.
type Error struct {
	Where string // file:line:column, or the variable
	Key   string // dotted path; empty if the mistake is not in a value
	Msg   string
}

func (e Error) Error() string {
	if e.Key == "" {
		return e.Where + ": " + e.Msg
	}
	return e.Where + ": " + e.Key + ": " + e.Msg
}

// Errors are all mistakes that were found.
type Errors []Error

func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// decoder lays one source over dst.
type decoder struct {
	where   func(n *yaml.Node) string
	origins Origins
	errs    Errors
}

func (d *decoder) bad(n *yaml.Node, key, format string, args ...any) {
	d.errs = append(d.errs, Error{d.where(n), key, fmt.Sprintf(format, args...)})
}

// document decodes a whole file into dst, a pointer to a struct.
func (d *decoder) document(text []byte, dst any) {
	dec := yaml.NewDecoder(strings.NewReader(string(text)))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF): // nothing, or comments only: all defaults
		return
	case err != nil:
		d.syntax(err)
		return
	}
	if err := dec.Decode(&more); err == nil {
		d.bad(&more, "", "a second document begins here; a configuration is one document, remove the --- line")
	} else if !errors.Is(err, io.EOF) {
		d.syntax(err)
	}
	if len(doc.Content) == 1 {
		d.value(doc.Content[0], reflect.ValueOf(dst).Elem(), "")
	}
}

// syntax reports an error of the YAML parser, which knows the line only.
func (d *decoder) syntax(err error) {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	at := &yaml.Node{Line: 1, Column: 1}
	if rest, ok := strings.CutPrefix(msg, "line "); ok {
		line, text, _ := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(line); err == nil {
			at.Line, msg = n, text
		}
	}
	d.bad(at, "", "not YAML: %s", msg)
}

// value decodes n into v, which stands behind key.
func (d *decoder) value(n *yaml.Node, v reflect.Value, key string) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		if isLeaf(v.Type()) && v.Kind() != reflect.Slice && v.Kind() != reflect.Map {
			d.bad(n, key, "has no value; give it one or remove the key")
		}
		return // a group, list or map whose lines are all commented out
	}
	switch {
	case v.Kind() == reflect.Struct && !isLeaf(v.Type()):
		d.group(n, v, key)
		return
	case v.Kind() == reflect.Slice:
		d.list(n, v, key)
	case v.Kind() == reflect.Map:
		d.texts(n, v, key)
	default:
		d.scalar(n, v, key)
	}
	d.origins[key] = d.where(n)
}

func (d *decoder) group(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind != yaml.MappingNode {
		d.bad(n, key, "is %s, but keys are wanted here: %s", kindName(n), strings.Join(names(v.Type()), ", "))
		return
	}
	seen := map[string]int{}
	for i := 0; i < len(n.Content); i += 2 {
		k := n.Content[i]
		path := join(key, k.Value)
		if line, twice := seen[k.Value]; twice {
			d.bad(k, path, "is given twice; the first is in line %d", line)
			continue
		}
		seen[k.Value] = k.Line
		f, ok := field(v.Type(), k.Value)
		if !ok {
			d.bad(k, path, "unknown key%s", suggest(k.Value, names(v.Type())))
			continue
		}
		d.value(n.Content[i+1], v.FieldByIndex(f.Index), path)
	}
}

// inheritor is a list element that names only what differs from the default list's first.
type inheritor interface {
	inherit(proto any)
	complete()
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind != yaml.SequenceNode {
		d.bad(n, key, "is %s, but a list is wanted: [a, b]", kindName(n))
		return
	}
	for k := range d.origins { // of the list that this one takes the place of
		if strings.HasPrefix(k, key+"[") {
			d.origins[k] = "default"
		}
	}
	out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, c := range n.Content {
		e, complete := out.Index(i), func() {}
		if in, ok := e.Addr().Interface().(inheritor); ok {
			if v.Len() > 0 {
				in.inherit(v.Index(0).Addr().Interface())
			}
			complete = in.complete
		}
		d.value(c, e, fmt.Sprintf("%s[%d]", key, i))
		complete()
	}
	v.Set(out)
}

func (d *decoder) texts(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind != yaml.MappingNode {
		d.bad(n, key, "is %s, but names with values are wanted: {a: b}", kindName(n))
		return
	}
	out := reflect.MakeMap(v.Type())
	for i := 0; i < len(n.Content); i += 2 {
		k, c := n.Content[i], n.Content[i+1]
		if c.Kind != yaml.ScalarNode {
			d.bad(c, join(key, k.Value), "is %s, but text is wanted", kindName(c))
			continue
		}
		out.SetMapIndex(reflect.ValueOf(k.Value), reflect.ValueOf(c.Value))
	}
	v.Set(out)
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind != yaml.ScalarNode {
		d.bad(n, key, "is %s, but one value is wanted", kindName(n))
		return
	}
	if err := setText(v, n.Value); err != nil {
		d.bad(n, key, "%v", err)
	}
}

// setText reads a scalar by the type of its field.
func setText(v reflect.Value, s string) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(s))
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(s)
	case reflect.Bool:
		if s != "true" && s != "false" {
			return fmt.Errorf("%q is neither true nor false", s)
		}
		v.SetBool(s == "true")
	case reflect.Int:
		i, err := strconv.Atoi(s)
		if err != nil || i < 0 {
			return fmt.Errorf("%q is not a whole number from 0 on", s)
		}
		v.SetInt(int64(i))
	default:
		return fmt.Errorf("conf: no reader for %s", v.Type())
	}
	return nil
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a group of keys"
	case yaml.SequenceNode:
		return "a list"
	}
	return fmt.Sprintf("the value %q", n.Value)
}
