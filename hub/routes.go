package hub

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/hub/unpack"
)

// maxRoutes bounds what a hub runs beside ingest: a stream and a writer each.
const maxRoutes = 100

// packed reports whether the route leaves its messages in the ledger. Only for
// routes with defaults.
func (r *Route) packed() bool { return !*r.Unpack }

// routeName is how people find the route in hub.yaml.
func (c *Config) routeName(i int) string {
	return fmt.Sprintf("routes[%d] (match %s)", i, c.Routes[i].Match)
}

// checkShadowed reports routes that can never get a message, because those
// before them take every subject that they match.
func (c *Config) checkShadowed(p *problems) {
	if len(c.Routes) > maxRoutes {
		p.add("routes", "%d routes are more than the %d that are possible; join some of them", len(c.Routes), maxRoutes)
		return
	}
	matches := make([]string, len(c.Routes))
	for i, r := range c.Routes {
		if checkFilter(r.Match) != nil {
			continue // reported, and takes nothing
		}
		by := coveredBy(r.Match, matches[:i])
		matches[i] = r.Match
		if len(by) == 0 {
			continue
		}
		names := make([]string, len(by))
		for k, j := range by {
			names[k] = c.routeName(j)
		}
		first, takes := fmt.Sprintf("routes[%d]", by[0]), "takes"
		if len(by) > 1 {
			takes = "together take"
		}
		p.add(fmt.Sprintf("routes[%d].match", i), "%s never gets a message, because %s %s all of them first; move this route before %s, or remove it",
			r.Match, strings.Join(names, " and "), takes, first)
	}
}

// checkPacked looks at what a packed route has of a stream's settings.
func (r *Route) checkPacked(p *problems, key func(string) string) {
	if r.Stream != "" && !streamName.MatchString(r.Stream) {
		p.add(key("stream"), "%q is not 1 to 64 of A-Z a-z 0-9 _ -", r.Stream)
	}
}

// Notes says what of a valid configuration is probably not meant. Settings of a
// packed route's stream are a note and no mistake, so that a route can be packed
// and unpacked again by one key.
func (c Config) Notes() (out []string) {
	c = c.withDefaults()
	matches := make([]string, len(c.Routes))
	for i, r := range c.Routes {
		matches[i] = r.Match
		if !r.packed() {
			continue
		}
		var unused []string
		for _, k := range []struct {
			key string
			set bool
		}{{"prefix", r.Prefix != ""}, {"max_bytes", r.MaxBytes != Size{}}, {"discard", r.Discard != ""}, {"compression", r.Compression != ""}} {
			if k.set {
				unused = append(unused, k.key)
			}
		}
		if unused != nil {
			out = append(out, fmt.Sprintf("%s is packed and has no stream: %s of it is not used", c.routeName(i), strings.Join(unused, ", ")))
		}
		if r.MaxAge > c.Blocks.Retain {
			out = append(out, fmt.Sprintf("%s is packed: the whole ledger stays for its max_age of %s, as blocks hold messages of all routes; blocks.max_bytes must have room for that",
				c.routeName(i), r.MaxAge))
		}
	}
	if !covers(">", matches) {
		out = append(out, "no route matches >: a message that none takes is in no stream; it is counted as unrouted, and gone with its block")
	}
	return out
}

// table is the routes as unpacking needs them.
func (c *Config) table() unpack.Table {
	table := make(unpack.Table, len(c.Routes))
	for i, r := range c.Routes {
		table[i] = unpack.Route{Match: r.Match, Packed: r.packed(), MaxAge: r.MaxAge}
		if !r.packed() {
			table[i].Stream, table[i].Prefix = r.Stream, r.Prefix
		}
	}
	return table
}

// unpacked returns the route of a stream. Without one the filter decides, whose
// subjects begin with a route's prefix; else it is the route that takes what the
// others leave, so that a new one before it changes nothing for readers.
func (c *Config) unpacked(stream, filter string) (Route, error) {
	var all []Route
	for _, r := range c.Routes {
		if !r.packed() && (stream == "" || r.Stream == stream) {
			all = append(all, r)
		}
	}
	rest := func(r Route) bool { return r.Match == ">" }
	begins := func(r Route) bool { return filter == "" || within(filter, r.Prefix) }
	for _, fits := range []func(Route) bool{
		func(r Route) bool { return rest(r) && begins(r) }, begins, rest, func(Route) bool { return true },
	} {
		if i := slices.IndexFunc(all, fits); i >= 0 {
			return all[i], nil
		}
	}
	switch {
	case stream == "", slices.ContainsFunc(c.Routes, func(r Route) bool { return r.packed() && r.Stream == stream }):
		return Route{}, fmt.Errorf("the messages are packed in %s (unpack: false): read them with a consumer of blocks, or unpack the route", store.Blocks)
	default:
		return Route{}, fmt.Errorf("stream %q has no route here", stream)
	}
}

// whenFull says what helps against a full stream.
func (h *Hub) whenFull(stream string) string {
	switch stream {
	case store.Retry:
		return "`dead retry` is refused until back ends have read retry.<consumer>, it is purged, or dead.max_bytes is raised"
	case store.Commands:
		return "new commands are refused until devices have taken some, they expire or are cancelled, or commands.max_bytes is raised"
	case store.Advisories:
		return "the oldest go, and their letters with them: raise dead.max_bytes, and see what holds letters up"
	}
	if stream != store.Blocks {
		return "raise its max_bytes, or let back ends catch up and purge"
	}
	const blocks = "raise its max_bytes, or let back ends and unpacking catch up"
	for i, r := range h.cfg.Routes {
		if r.packed() && r.MaxAge > h.cfg.Blocks.Retain {
			return fmt.Sprintf("devices keep their backlog. %s is packed and keeps every block for %s: lower its max_age, or raise blocks.max_bytes", h.cfg.routeName(i), r.MaxAge)
		}
	}
	return blocks
}
