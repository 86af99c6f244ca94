package alerts

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A small part of PromQL: what the alert rules and dashboards of this repository
// use, and an error for everything else. rate, increase and delta are those of the
// samples in the window, without Prometheus' extrapolation to its borders.

// selector is a metric in an expression.
type selector struct {
	name     string
	matchers []matcher
	window   time.Duration // 0: an instant
}

type matcher struct{ label, op, value string }

func (m matcher) takes(v string) bool {
	switch m.op {
	case "=":
		return v == m.value
	case "!=":
		return v != m.value
	}
	ok := regexp.MustCompile("^(?:" + m.value + ")$").MatchString(v)
	return ok == (m.op == "=~")
}

// series is a metric over time, a value a minute.
type series struct {
	name   string
	labels map[string]string
	at     func(minute int) float64
}

// sample is one element of a vector; a scalar has nil labels.
type sample struct {
	labels map[string]string
	v      float64
}

// node is an expression; it is evaluated at a minute.
type node func(all []series, minute int) []sample

// parser reads one expression.
type parser struct {
	toks      []string
	selectors []selector
	grouped   []string // labels of by (…)
}

var token = regexp.MustCompile(`^\s*("(?:[^"\\]|\\.)*"|[0-9]+(?:\.[0-9]+)?[smhd]?|[a-zA-Z_:][a-zA-Z0-9_:]*|=~|!~|!=|==|[-+*/(){}\[\],=<>])`)

// parseExpr reads an expression.
func parseExpr(text string) (n node, p *parser, err error) {
	p = &parser{}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: %v", text, r)
		}
	}()
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimSpace(rest) {
		m := token.FindStringSubmatch(rest)
		if m == nil {
			return nil, p, fmt.Errorf("%s: cannot read %q", text, rest)
		}
		p.toks, rest = append(p.toks, m[1]), rest[len(m[0]):]
	}
	n = p.binary(0)
	if len(p.toks) > 0 {
		return nil, p, fmt.Errorf("%s: cannot read on at %q", text, p.toks)
	}
	return n, p, nil
}

func (p *parser) peek() string {
	if len(p.toks) == 0 {
		return ""
	}
	return p.toks[0]
}

func (p *parser) next() string {
	t := p.peek()
	if t == "" {
		panic("it ends too early")
	}
	p.toks = p.toks[1:]
	return t
}

func (p *parser) want(t string) {
	if got := p.next(); got != t {
		panic(fmt.Sprintf("%q instead of %q", got, t))
	}
}

// levels are the operators, the loosest first.
var levels = [][]string{{"and"}, {">", "<", "=="}, {"+", "-"}, {"*", "/"}}

func (p *parser) binary(level int) node {
	if level == len(levels) {
		return p.unary()
	}
	left := p.binary(level + 1)
	for slices.Contains(levels[level], p.peek()) {
		op, l, r := p.next(), left, p.binary(level+1)
		left = func(all []series, minute int) []sample { return combine(op, l(all, minute), r(all, minute)) }
	}
	return left
}

// combine matches elements with the same labels; a scalar goes with all.
func combine(op string, left, right []sample) (out []sample) {
	for _, l := range left {
		for _, r := range right {
			if l.labels != nil && r.labels != nil && !maps.Equal(l.labels, r.labels) {
				continue
			}
			labels := l.labels
			if labels == nil {
				labels = r.labels
			}
			v, keep := l.v, true
			switch op {
			case "and":
			case ">":
				keep = l.v > r.v
			case "<":
				keep = l.v < r.v
			case "==":
				keep = l.v == r.v
			case "+":
				v = l.v + r.v
			case "-":
				v = l.v - r.v
			case "*":
				v = l.v * r.v
			case "/":
				v = l.v / r.v
			}
			if keep {
				out = append(out, sample{labels, v})
			}
		}
	}
	return out
}

func (p *parser) unary() node {
	t := p.next()
	if v, err := strconv.ParseFloat(t, 64); err == nil {
		return func([]series, int) []sample { return []sample{{nil, v}} }
	}
	switch t {
	case "(":
		n := p.binary(0)
		p.want(")")
		return n
	case "time":
		p.want("(")
		p.want(")")
		return func(_ []series, minute int) []sample { return []sample{{nil, float64(minute) * 60}} }
	case "sum":
		return p.sum()
	case "rate", "increase", "delta":
		p.want("(")
		s := p.selector(p.next())
		p.want(")")
		if s.window == 0 {
			panic(t + " of an instant")
		}
		return over(t, s)
	case "histogram_quantile": // is drawn, and in no rule: it is read, not evaluated
		p.want("(")
		p.next()
		p.want(",")
		p.binary(0)
		p.want(")")
		return func([]series, int) []sample { panic("histogram_quantile is not evaluated here") }
	}
	s := p.selector(t)
	if s.window > 0 {
		panic("a range outside of a function")
	}
	return func(all []series, minute int) (out []sample) {
		for _, x := range s.of(all) {
			out = append(out, sample{x.labels, x.at(minute)})
		}
		return out
	}
}

// sum reads sum by (labels) (expression).
func (p *parser) sum() node {
	p.want("by")
	p.want("(")
	var by []string
	for p.peek() != ")" {
		by = append(by, p.next())
		if p.peek() == "," {
			p.next()
		}
	}
	p.want(")")
	p.grouped = append(p.grouped, by...)
	p.want("(")
	n := p.binary(0)
	p.want(")")
	return func(all []series, minute int) (out []sample) {
		for _, s := range n(all, minute) {
			labels := map[string]string{}
			for _, l := range by {
				if v, ok := s.labels[l]; ok {
					labels[l] = v
				}
			}
			i := slices.IndexFunc(out, func(o sample) bool { return maps.Equal(o.labels, labels) })
			if i < 0 {
				out = append(out, sample{labels, s.v})
			} else {
				out[i].v += s.v
			}
		}
		return out
	}
}

func (p *parser) selector(name string) selector {
	s := selector{name: name}
	if p.peek() == "{" {
		for p.next(); p.peek() != "}"; {
			m := matcher{label: p.next(), op: p.next()}
			v, err := strconv.Unquote(p.next())
			if err != nil {
				panic(err)
			}
			m.value = v
			s.matchers = append(s.matchers, m)
			if p.peek() == "," {
				p.next()
			}
		}
		p.next()
	}
	if p.peek() == "[" {
		p.next()
		d, err := time.ParseDuration(p.next())
		if err != nil {
			panic(err)
		}
		s.window = d
		p.want("]")
	}
	p.selectors = append(p.selectors, s)
	return s
}

func (s selector) of(all []series) (out []series) {
	for _, x := range all {
		if x.name == s.name && !slices.ContainsFunc(s.matchers, func(m matcher) bool { return !m.takes(x.labels[m.label]) }) {
			out = append(out, x)
		}
	}
	return out
}

// over evaluates a function of a window. Where a counter falls, it began anew.
func over(fn string, s selector) node {
	minutes := int(s.window / time.Minute)
	return func(all []series, minute int) (out []sample) {
		for _, x := range s.of(all) {
			v := 0.0
			for m := minute - minutes + 1; m <= minute; m++ {
				d := x.at(m) - x.at(m-1)
				if d < 0 && fn != "delta" {
					d = x.at(m)
				}
				v += d
			}
			if fn == "rate" {
				v /= s.window.Seconds()
			}
			out = append(out, sample{x.labels, v})
		}
		return out
	}
}
