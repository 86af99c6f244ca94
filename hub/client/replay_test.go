package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// replayed is what Replay shows, by sequence.
func replayed(t *testing.T, c *Client, cfg ReplayConfig) (out []uint64) {
	t.Helper()
	err := c.Replay(t.Context(), cfg, func(_ context.Context, m *Message) error {
		out = append(out, m.StreamSeq)
		if string(m.Payload) != fmt.Sprint(m.Seq) || m.Device == "" || m.Stream != "EDGE" || m.Stored.IsZero() {
			t.Errorf("%+v", m)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return out
}

func TestReplayEndsWhereItShould(t *testing.T) {
	w := newWorld(t)
	c := w.client()
	if got := replayed(t, c, ReplayConfig{}); got != nil {
		t.Errorf("an empty stream: %v", got)
	}
	w.edge(1, 4)
	w.put("edge.other.a", head(5), []byte("5"))
	w.put("edge.other.a", head(6, "Fieldpost-Part", "1/2"), []byte(""))
	w.put("edge.other.a", head(6, "Fieldpost-Part", "2/2"), []byte("6"))
	second, fourth, all := receiveStored(t, w, 2), receiveStored(t, w, 4), []uint64{1, 2, 3, 4, 5, 7}
	for name, test := range map[string]struct {
		cfg  ReplayConfig
		want []uint64
	}{
		"all":            {ReplayConfig{}, all},
		"from":           {ReplayConfig{From: second}, all[1:]},
		"to":             {ReplayConfig{To: second}, all[:2]},
		"from to":        {ReplayConfig{From: second, To: fourth}, all[1:4]},
		"filter":         {ReplayConfig{Filter: "edge.other.>"}, all[4:]},
		"filter, before": {ReplayConfig{Filter: "edge.press-7.>"}, all[:4]},
		"nothing":        {ReplayConfig{Filter: "edge.nobody.>"}, nil},
		"future":         {ReplayConfig{From: time.Now().Add(time.Hour)}, nil},
		"past":           {ReplayConfig{To: second.Add(-time.Hour)}, nil},
	} {
		if got := replayed(t, c, test.cfg); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestReplayEndsThoughMoreKeepsComing(t *testing.T) {
	w := newWorld(t)
	w.edge(1, 300)
	var n int
	err := w.client().Replay(t.Context(), ReplayConfig{}, func(_ context.Context, m *Message) error {
		if n++; m.StreamSeq != uint64(n) {
			t.Errorf("message %d in the place of %d", m.StreamSeq, n)
		}
		w.edge(1000+n, 1000+n)
		return nil
	})
	if err != nil || n != 300 {
		t.Errorf("%d messages, %v", n, err)
	}
}

func TestReplayEndsWithItsHandlerOrContext(t *testing.T) {
	w := newWorld(t)
	w.edge(1, 10)
	c := w.client()
	own := errors.New("enough")
	n := 0
	err := c.Replay(t.Context(), ReplayConfig{}, func(context.Context, *Message) error {
		if n++; n == 3 {
			return own
		}
		return nil
	})
	if !errors.Is(err, own) || n != 3 {
		t.Errorf("%d, %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := c.Replay(ctx, ReplayConfig{}, func(context.Context, *Message) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for say, cfg := range map[string]ReplayConfig{"BLOCKS": {Stream: "BLOCKS"}, "NONE": {Stream: "NONE"}, "Filter": {Filter: "a..b"}} {
		if err := c.Replay(t.Context(), cfg, func(context.Context, *Message) error { return nil }); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v", say, err)
		}
	}
}

func TestReplayOutlivesTheServer(t *testing.T) {
	w := newWorld(t)
	const n = 600
	w.edge(1, n)
	c := w.client()
	got := 0
	err := c.Replay(t.Context(), ReplayConfig{}, func(_ context.Context, m *Message) error {
		if got++; m.StreamSeq != uint64(got) {
			t.Errorf("message %d in the place of %d", m.StreamSeq, got)
		}
		if got == 100 {
			w.stop()
			w.start()
		}
		return nil
	})
	if err != nil || got != n {
		t.Errorf("%d of %d, %v", got, n, err)
	}
}

func TestDevicesComePageByPage(t *testing.T) {
	w := newWorld(t)
	var queries []string
	pages := map[string]string{
		"":  `{"devices":[{"device":"a"},{"device":"b"}],"next":"b"}`,
		"b": `{"devices":[{"device":"c"}],"next":""}`,
	}
	api := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		queries = append(queries, r.URL.Query().Get("filter"))
		fmt.Fprint(rw, pages[r.URL.Query().Get("after")])
	}))
	defer api.Close()
	c := connect(t, Config{URLs: []string{w.url()}, HTTP: api.URL})
	defer c.Close()
	list := func() (names []string, err error) {
		for d, e := range c.Devices(t.Context(), "state=online") {
			names, err = append(names, d.Device), e
		}
		return names, err
	}
	names, err := list()
	if err != nil || !slices.Equal(names, []string{"a", "b", "c"}) || !slices.Equal(queries, []string{"state=online", "state=online"}) {
		t.Errorf("%v %v %v", names, queries, err)
	}
	for d := range c.Devices(t.Context(), "") {
		if d.Device != "a" {
			t.Error(d)
		}
		break
	}
	pages["b"] = `{"devices":[],"next":"b"}` // for ever
	if _, err := list(); err == nil || !strings.Contains(err.Error(), "is this a hub?") {
		t.Error(err)
	}
	pages["b"] = "<html>"
	if _, err := list(); err == nil {
		t.Error("that is no page")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := list(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}
