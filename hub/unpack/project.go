package unpack

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// PartBytes is the largest payload that a stream holds in one message; a larger
// one becomes parts. It belongs to the projection and never changes.
const PartBytes = 512 << 10

// partRoom is for the subject and the headers of a part.
const partRoom = 16 << 10

// Out is one message of a block as a stream holds it.
type Out struct {
	Msg         *wire.Message
	Index       int    // in the block
	Subject     string // in the stream
	Data        []byte // all of the payload, or a part of it
	Part, Parts int    // from 1; Parts is 1 for a whole message
	Backfill    bool   // newer messages of the lane were stored before

	seq, time, block string // header values; alias one string per block
}

// Projector projects blocks to the messages of one stream. It is not safe for
// concurrent use.
type Projector struct {
	stream string
	tables Tables
	walk   *Walk  // nil: what the table of a block's time gives to the stream
	done   []Walk // walks before it

	subjects map[string]string // of the block at hand: publisher's subject → subject in the stream, "" if not ours
	text     []byte
	ends     []int
	second   int64  // that stamp holds, in Unix seconds
	stamp    []byte // "2026-01-02T15:04:05"
}

// NewProjector returns a projector to stream.
func NewProjector(stream string, tables Tables) *Projector {
	return &Projector{stream: stream, tables: tables, subjects: map[string]string{}, second: -1 << 62}
}

// Project appends to dst what the stream holds of the block at seq of the
// ledger, in order. Blank entries and voids are not messages. An error means
// that the block does not belong under its subject.
func (p *Projector) Project(dst []Out, seq uint64, subject string, b *wire.Block) ([]Out, error) {
	device, err := deviceOf(subject, &b.Header)
	if err != nil {
		return dst, err
	}
	if b.Kind != wire.KindMessages || !p.route(device, seq, b.Subjects) {
		return dst, nil
	}
	first := len(dst)
	for i := range b.Messages {
		m := &b.Messages[i]
		if m.Blank != 0 {
			continue
		}
		if to := p.subjects[m.Subject]; to != "" {
			dst = appendParts(dst, Out{Msg: m, Index: i, Subject: to, Data: m.Payload, Part: 1, Parts: 1})
		}
	}
	p.values(dst[first:], seq, b.First)
	return dst, nil
}

// deviceOf reads the device from the ledger's subject, which only the hub chose.
func deviceOf(subject string, h *wire.Header) (string, error) {
	rest, ok := strings.CutPrefix(subject, "fp.blocks.")
	device, _, _ := strings.Cut(rest, ".")
	if !ok || wire.BlockSubject(device, h.Flow) != subject {
		return "", fmt.Errorf("%w: flow %s lies under %s", wire.ErrCorrupt, h.Flow, subject)
	}
	return device, nil
}

// route fills p.subjects for one block and reports whether any is ours.
func (p *Projector) route(device string, seq uint64, subjects []string) (any bool) {
	table := p.tables.At(seq)
	clear(p.subjects)
	for _, s := range subjects {
		r := table.gives(p.stream, s)
		if p.walk != nil {
			r = p.late(r, seq, s)
		}
		if r != nil {
			p.subjects[s] = r.Prefix + "." + device + "." + s
			any = true
		}
	}
	return any
}

// late returns the route of the walk for a subject, if the stream did not have
// its messages: neither by then, the route of the block's time, nor by an
// earlier walk.
func (p *Projector) late(then *Route, seq uint64, subject string) *Route {
	if then != nil || !p.walk.holds(seq) {
		return nil
	}
	for i := range p.done {
		if d := &p.done[i]; d.holds(seq) && d.Table.gives(p.stream, subject) != nil {
			return nil
		}
	}
	return p.walk.Table.gives(p.stream, subject)
}

func appendParts(dst []Out, o Out) []Out {
	if len(o.Data) <= PartBytes {
		return append(dst, o)
	}
	rest := o.Data
	o.Parts = (len(rest) + PartBytes - 1) / PartBytes
	for ; len(rest) > 0; o.Part++ {
		n := min(len(rest), PartBytes)
		o.Data, rest = rest[:n:n], rest[n:]
		dst = append(dst, o)
	}
	return dst
}

// values writes the header values that differ from message to message into one
// string, so that a block costs one allocation.
func (p *Projector) values(outs []Out, seq, first uint64) {
	p.text, p.ends = p.text[:0], p.ends[:0]
	for i := range outs {
		o := &outs[i]
		p.text = strconv.AppendUint(p.text, first+uint64(o.Index), 10)
		p.ends = append(p.ends, len(p.text))
		p.appendTime(o.Msg.Time)
		p.ends = append(p.ends, len(p.text))
		p.text = append(strconv.AppendUint(p.text, seq, 10), '/')
		p.text = strconv.AppendInt(p.text, int64(o.Index), 10)
		p.ends = append(p.ends, len(p.text))
	}
	all, at := string(p.text), 0
	for i := range outs {
		e := p.ends[3*i:]
		outs[i].seq, outs[i].time, outs[i].block = all[at:e[0]], all[e[0]:e[1]], all[e[1]:e[2]]
		at = e[2]
	}
}

// appendTime writes Unix milliseconds as RFC 3339 in UTC.
func (p *Projector) appendTime(ms int64) {
	sec, milli := ms/1000, ms%1000
	if milli < 0 {
		sec, milli = sec-1, milli+1000
	}
	if sec != p.second {
		p.second = sec
		p.stamp = time.Unix(sec, 0).UTC().AppendFormat(p.stamp[:0], "2006-01-02T15:04:05")
	}
	p.text = append(p.text, p.stamp...)
	p.text = append(p.text, '.', byte('0'+milli/100), byte('0'+milli/10%10), byte('0'+milli%10), 'Z')
}
