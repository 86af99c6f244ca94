package conf

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
)

// isLeaf reports whether a value of type t stands behind one key.
func isLeaf(t reflect.Type) bool {
	return t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func keyOf(f reflect.StructField) string { return f.Tag.Get("yaml") }

func join(group, key string) string {
	if group == "" {
		return key
	}
	return group + "." + key
}

func names(t reflect.Type) []string {
	out := make([]string, t.NumField())
	for i := range out {
		out[i] = keyOf(t.Field(i))
	}
	return out
}

func field(t reflect.Type, key string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if f := t.Field(i); keyOf(f) == key {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// leaves calls fn for every key below v, in the order of the file.
func leaves(v reflect.Value, group string, fn func(key string, v reflect.Value, tag reflect.StructTag)) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		key := join(group, keyOf(f))
		if isLeaf(f.Type) {
			fn(key, v.Field(i), f.Tag)
		} else {
			leaves(v.Field(i), key, fn)
		}
	}
}

// text is how a scalar is written.
func text(v any) string {
	if m, ok := v.(encoding.TextMarshaler); ok {
		if b, err := m.MarshalText(); err == nil {
			return string(b)
		}
	}
	return fmt.Sprint(v)
}

// suggest names the key that was probably meant.
func suggest(got string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		if n := distance(got, k); n < least && 2*n <= len(k) {
			best, least = k, n
		}
	}
	if best == "" {
		return "; known here: " + strings.Join(known, ", ")
	}
	return "; did you mean " + best + "?"
}

// distance is the number of letters to insert, remove or change.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
