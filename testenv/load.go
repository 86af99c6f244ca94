package testenv

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fieldpost/fieldpost/agent/client"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Load publishes to one agent from several sequential sources, over every way
// in, until it is stopped. An answer that never came leaves the outcome open:
// sources with ids try again under the same id, the others go on with the next
// message.
type Load struct {
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// StartLoad begins to publish: single requests, NDJSON batches, requests with
// ids, and the pipelined SDK, each in its own source. every paces a source.
func (w *World) StartLoad(a *Agent, every time.Duration, seed uint64) *Load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Load{stop: cancel}
	w.TB.Cleanup(l.Stop)
	w.loads = append(w.loads, l)
	run := func(name string, lane wire.Lane, f func(*source, context.Context)) {
		s := &source{w: w, a: a, name: fmt.Sprintf("%s-%d", name, seed), lane: lane, every: every,
			rnd: rand.New(rand.NewPCG(seed, uint64(len(name))))}
		l.wg.Go(func() { f(s, ctx) })
	}
	run("single", wire.Normal, (*source).singles)
	run("urgent", wire.Urgent, (*source).singles)
	run("with-id", wire.Normal, (*source).withIDs)
	run("batch", wire.Bulk, (*source).batches)
	run("sdk", wire.Normal, (*source).pipelined)
	return l
}

// Stop ends the load and waits for what is under way.
func (l *Load) Stop() { l.stop(); l.wg.Wait() }

// source is one sequential publisher.
type source struct {
	w     *World
	a     *Agent
	name  string
	lane  wire.Lane
	every time.Duration
	rnd   *rand.Rand
	n     int
}

func (s *source) next() Published {
	s.n++
	p := Published{Device: s.a.Device, Source: s.name, N: s.n, Lane: s.lane,
		Subject: fmt.Sprintf("load.%s.s%d", s.name, s.n%7)}
	if s.n%3 == 0 {
		p.Headers = []wire.Pair{{Key: "Unit", Value: fmt.Sprint("u", s.n%5)}, {Key: "Kind", Value: "test"}}
	}
	p.Payload = fmt.Appendf(nil, `{"device":%q,"source":%q,"n":%d,"pad":%q}`, p.Device, p.Source, p.N, strings.Repeat("x", s.rnd.IntN(200)))
	s.w.History.Sent(p)
	return p
}

// pause returns false when the load is over.
func (s *source) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (s *source) singles(ctx context.Context) {
	for s.pause(ctx, s.every) {
		p := s.next()
		if r, err := s.post(p, ""); err == nil {
			s.w.History.Acked(p, r)
		}
	}
}

// withIDs never gives up on a message: the id must make that safe.
func (s *source) withIDs(ctx context.Context) {
	for s.pause(ctx, s.every) {
		p := s.next()
		id := fmt.Sprintf("%s/%d", s.name, s.n)
		for {
			r, err := s.post(p, id)
			if err == nil {
				s.w.History.Acked(p, r)
				if s.rnd.IntN(4) == 0 { // a careful publisher that asks twice
					if again, err := s.post(p, id); err == nil && again != r {
						s.w.TB.Logf("id %s was answered with %v, then with %v", id, r, again)
						s.w.History.Acked(p, again) // the checker will say "changed"
					}
				}
				break
			}
			if !s.pause(ctx, 20*time.Millisecond) {
				return
			}
		}
	}
}

// post publishes one message; an error means that the outcome is open.
func (s *source) post(p Published, id string) (Receipt, error) { return s.postWith(p, id, "") }

// postWith is post with a ttl, unless that is empty.
func (s *source) postWith(p Published, id, ttl string) (Receipt, error) {
	req, err := http.NewRequest("POST", "http://agent/v1/publish/"+p.Subject, bytes.NewReader(p.Payload))
	if err != nil {
		return Receipt{}, err
	}
	if id != "" {
		req.Header.Set("Fieldpost-Id", id)
	}
	if ttl != "" {
		req.Header.Set("Fieldpost-Ttl", ttl)
	}
	req.Header.Set("Fieldpost-Lane", p.Lane.String())
	if p.Headers != nil {
		hs := map[string]string{}
		for _, h := range p.Headers {
			hs[h.Key] = h.Value
		}
		b, err := json.Marshal(hs)
		if err != nil {
			return Receipt{}, err
		}
		req.Header.Set("Fieldpost-Headers", string(b))
	}
	var r Receipt
	return r, s.do(req, &r)
}

func (s *source) do(req *http.Request, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	resp, err := s.a.http.Do(req.WithContext(ctx))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != 200 {
		return fmt.Errorf("%s: %s", resp.Status, body)
	}
	return json.Unmarshal(body, into)
}

func (s *source) batches(ctx context.Context) {
	for s.pause(ctx, 4*s.every) {
		var ps []Published
		var body bytes.Buffer
		for range 1 + s.rnd.IntN(20) {
			p := s.next()
			line := map[string]any{"subject": p.Subject, "payload": string(p.Payload), "lane": p.Lane}
			if p.Headers != nil {
				hs := map[string]string{}
				for _, h := range p.Headers {
					hs[h.Key] = h.Value
				}
				line["headers"] = hs
			}
			if err := json.NewEncoder(&body).Encode(line); err != nil {
				s.w.TB.Logf("encode: %v", err)
				return
			}
			ps = append(ps, p)
		}
		req, err := http.NewRequest("POST", "http://agent/v1/publish", &body)
		if err != nil {
			return
		}
		var r struct {
			Epoch, Lane string
			Accepted    int
			FirstSeq    uint64 `json:"first_seq"`
			LastSeq     uint64 `json:"last_seq"`
		}
		if err := s.do(req, &r); err != nil {
			continue
		}
		if r.Accepted != len(ps) || r.LastSeq-r.FirstSeq+1 != uint64(len(ps)) {
			s.w.TB.Logf("a batch of %d was answered with %+v", len(ps), r)
		}
		for i, p := range ps {
			s.w.History.Acked(p, Receipt{r.Epoch, r.Lane, r.FirstSeq + uint64(i)})
		}
	}
}

// pipelined keeps up to 64 messages in flight on one connection.
func (s *source) pipelined(ctx context.Context) {
	type sent struct {
		p       Published
		pending *client.Pending
	}
	for s.pause(ctx, s.every) {
		c, err := client.Dial(ctx, s.a.Socket)
		if err != nil {
			continue
		}
		var flight []sent
		settle := func(k int) (alive bool) {
			alive = true
			for _, f := range flight[:k] {
				r, err := f.pending.Wait(context.Background())
				if err != nil {
					alive = false // stopped, or the connection broke: open outcomes
					continue
				}
				s.w.History.Acked(f.p, Receipt{r.Epoch, string(r.Lane), r.Seq})
			}
			flight = append(flight[:0], flight[k:]...)
			return alive
		}
		for alive := true; alive && s.pause(ctx, s.every/4); {
			p := s.next()
			m := client.Message{Subject: p.Subject, Payload: p.Payload, Lane: client.Lane(p.Lane.String())}
			for _, h := range p.Headers {
				m.Headers = append(m.Headers, client.Header{Key: h.Key, Value: h.Value})
			}
			flight = append(flight, sent{p, c.PublishAsync(m)})
			if len(flight) == 64 {
				alive = settle(32)
			}
		}
		settle(len(flight))
		c.Close()
	}
}
