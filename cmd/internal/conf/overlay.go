package conf

import (
	"errors"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// remote is what a hub may change of agent.yaml.
type remote struct {
	Log   remoteLog  `yaml:"log"`
	Link  Link       `yaml:"link"`
	Lanes []LaneRule `yaml:"lanes"`
}

type remoteLog struct {
	Level Level `yaml:"level"`
}

// overlayKey is above the keys of an overlay, in mistakes.
const overlayKey = "agent"

// Overlay lays a JSON object over a, which stays as it is: names and values are
// those of agent.yaml, of which only log.level, link and lanes can be given. The
// mistakes are told in one line, with keys below "agent".
func (a *Agent) Overlay(object []byte) (*Agent, error) {
	r := remote{Log: remoteLog{a.Log.Level}, Link: a.Link, Lanes: a.Lanes}
	d := &decoder{where: func(*yaml.Node) string { return "" }, origins: Origins{}}
	var doc yaml.Node
	if err := yaml.Unmarshal(object, &doc); err != nil || len(doc.Content) != 1 { // JSON is YAML
		return nil, errors.New(overlayKey + ": cannot be read")
	}
	top := doc.Content[0]
	d.onlyRemote(top, reflect.TypeFor[remote](), reflect.TypeFor[Agent](), overlayKey)
	if d.errs == nil {
		d.value(top, reflect.ValueOf(&r).Elem(), overlayKey)
	}
	if d.errs != nil {
		return nil, d.errs.inLine()
	}
	out := *a
	out.Log.Level, out.Link, out.Lanes = r.Log.Level, r.Link, r.Lanes
	return &out, nil
}

// onlyRemote refuses keys that agent.yaml has, but a hub may not change.
func (d *decoder) onlyRemote(n *yaml.Node, may, all reflect.Type, key string) {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		k := n.Content[i].Value
		there, known := field(all, k)
		here, ok := field(may, k)
		switch {
		case known && !ok:
			d.bad(n, join(key, k), "can be changed on the device only; remotely changed are log.level, link and lanes")
		case known && there.Type != here.Type && there.Type.Kind() == reflect.Struct:
			d.onlyRemote(n.Content[i+1], here.Type, there.Type, join(key, k))
		}
	}
}

// InOverlay tells mistakes that a package found in a Config with an overlay as
// Overlay tells its own.
func InOverlay(err error) error {
	var out Errors
	for _, e := range parts(err) {
		key, msg := cutKey(e.Error())
		out = append(out, Error{"", join(overlayKey, key), msg})
	}
	return out.inLine()
}

// inLine is all mistakes without places.
func (es Errors) inLine() error {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Key + ": " + e.Msg
	}
	return errors.New(strings.Join(lines, "; "))
}
