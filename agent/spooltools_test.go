package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// stock publishes n messages of some size in a lane.
func (w *world) stock(lane string, n, size int) {
	w.t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"subject":"s.%s","lane":%q,"payload":"%d %s"}`+"\n", lane, lane, i, strings.Repeat("x", size))
	}
	if r := w.do("POST", "/v1/publish?stream=1", b.String()); r.status != 200 {
		w.t.Fatalf("%d %s", r.status, r.body)
	}
}

func TestSpoolRoutes(t *testing.T) {
	w := startReal(t, nil)
	w.stock("normal", 30, 10)
	w.stock("bulk", 3, 10)
	for _, c := range []struct {
		method, path, body string
		status             int
		lines              int
		text               string
	}{
		{"GET", "/v1/spool/segments", "", 200, 2, `"state":"head","lane":"normal","epoch":"`},
		{"GET", "/v1/spool/segments?lane=bulk", "", 200, 1, `"ranges":"1-3","blocks":1,"messages":3,"waiting":3`},
		{"GET", "/v1/spool/segments?lane=slow", "", 400, 1, "bad_lane"},
		{"GET", "/v1/spool/messages", "", 200, 33, `"subject":"s.normal"`},
		{"GET", "/v1/spool/messages?limit=2&from=newest&lane=bulk", "", 200, 2, `"payload":"2 `},
		{"GET", "/v1/spool/messages?filter=s.b*", "", 400, 1, "bad_subject"},
		{"GET", "/v1/spool/messages?filter=s.bulk&limit=0", "", 200, 3, `"seq":3`},
		{"GET", "/v1/spool/messages?limit=-1", "", 400, 1, "bad_request"},
		{"GET", "/v1/spool/messages?from=last", "", 400, 1, "bad_request"},
		{"GET", "/v1/spool/verify", "", 200, 2, `"ok":true`},
		{"GET", "/v1/spool/quarantine", "", 200, 0, ""},
		{"GET", "/v1/spool/quarantine?report=../meta", "", 404, 1, "not_found"},
		{"POST", "/v1/spool/quarantine/remove?report=x.json", "", 404, 1, "not_found"},
		{"GET", "/v1/spool/purge", "", 405, 1, "method_not_allowed"},
		{"POST", "/v1/spool/purge", "{}", 400, 1, "bad_request"},
		{"POST", "/v1/spool/purge", `{"all":true,"lane":"bulk"}`, 400, 1, "bad_request"},
		{"POST", "/v1/spool/purge", `{"lanes":"bulk"}`, 400, 1, "bad_request"},
		{"POST", "/v1/spool/purge", `{"older_than":"-1h"}`, 400, 1, "bad_request"},
		{"POST", "/v1/spool/purge", `{"filter":"a..b"}`, 400, 1, "bad_subject"},
		{"POST", "/v1/spool/purge", `{"lane":"bulk","older_than":"1h"}`, 200, 1, `{"purged":0}`},
		{"POST", "/v1/spool/purge", `{"filter":"s.bulk"}`, 200, 1, `{"purged":3}`},
		{"POST", "/v1/spool/purge", `{"all":true}`, 200, 1, `{"purged":30}`},
		{"GET", "/v1/spool/messages", "", 200, 0, ""},
		{"GET", "/v1/spool/nothing", "", 404, 1, "not_found"},
	} {
		r := w.do(c.method, c.path, c.body)
		if r.status != c.status || strings.Count(string(r.body), "\n") != c.lines || !strings.Contains(string(r.body), c.text) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, r.status, r.body)
		}
	}
}

// TestSlowSpoolReaders: those who look take turns, and do not hold up a stop.
func TestSlowSpoolReaders(t *testing.T) {
	w := startReal(t, nil)
	w.stock("normal", 8000, 1000) // more than sockets buffer
	var readers []net.Conn
	for range maxSpoolReaders {
		c, err := net.Dial("unix", w.path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "GET /v1/spool/messages HTTP/1.1\r\nHost: agent\r\n\r\n")
		one := make([]byte, 1)
		if _, err := c.Read(one); err != nil { // its answer has begun
			t.Fatal(err)
		}
		readers = append(readers, c)
	}
	if r := w.do("GET", "/v1/spool/verify", ""); r.status != 429 {
		t.Errorf("one more: %d %s", r.status, r.body)
	}
	w.stop()
	for _, c := range readers {
		rest, err := io.ReadAll(c)
		if err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
			t.Error(err)
		}
		if bytes.Count(rest, []byte("\n")) > 7900 {
			t.Error("it was answered to the end")
		}
	}
	if err := <-w.done; err != nil {
		t.Error(err)
	}
	w.done <- nil
}

// TestFolder: the same answers without an agent, and no epoch is begun by it.
func TestFolder(t *testing.T) {
	w := startReal(t, nil)
	w.stock("normal", 5, 10)
	cfg := w.a.cfg
	if _, err := OpenFolder(cfg, false); !errors.Is(err, ErrFolderInUse) {
		t.Errorf("beside an agent: %v", err)
	}
	w.stop()
	<-w.done
	w.done <- nil
	ask := func(write bool, method, path, body string) (int, string) {
		t.Helper()
		f, err := OpenFolder(cfg, write)
		if err != nil {
			t.Fatal(err)
		}
		rec := httptest.NewRecorder()
		f.ServeHTTP(rec, httptest.NewRequest(method, path, strings.NewReader(body)))
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		return rec.Code, rec.Body.String()
	}
	epochs := func() (out string) {
		_, body := ask(false, "GET", "/v1/spool/segments", "")
		for dec := json.NewDecoder(strings.NewReader(body)); dec.More(); {
			var s segmentJSON
			if err := dec.Decode(&s); err != nil {
				t.Fatal(err)
			}
			out += fmt.Sprintf("%s %s %s %s\n", s.Segment, s.State, s.Epoch, s.Ranges)
		}
		return out
	}
	before := epochs()
	if code, body := ask(false, "GET", "/v1/spool/messages", ""); code != 200 || strings.Count(body, "\n") != 5 {
		t.Errorf("%d %s", code, body)
	}
	if code, body := ask(false, "POST", "/v1/spool/purge", `{"all":true}`); code != 500 {
		t.Errorf("purge of what is only looked at: %d %s", code, body)
	}
	if code, _ := ask(false, "GET", "/v1/status", ""); code != 404 {
		t.Errorf("status: %d", code)
	}
	if code, body := ask(true, "POST", "/v1/spool/purge", `{"filter":"other.>"}`); code != 200 || !strings.Contains(body, `"purged":0`) {
		t.Errorf("%d %s", code, body)
	}
	if after := epochs(); after != before || strings.Count(before, "\n") != 1 {
		t.Errorf("%s became %s", before, after)
	}
	if seals, _ := filepath.Glob(filepath.Join(cfg.spoolDir(), "seg-*")); len(seals) != 1 {
		t.Errorf("segments: %v", seals)
	}
	if code, body := ask(true, "POST", "/v1/spool/purge", `{"all":true}`); code != 200 || !strings.Contains(body, `"purged":5`) {
		t.Errorf("%d %s", code, body)
	}
}

// TestExportThatCannotEnd: the reader is told why, and sees that the file is cut off.
func TestExportThatCannotEnd(t *testing.T) {
	w := startReal(t, nil)
	w.stock("normal", 8000, 1000)
	resp, err := w.http.Get("http://agent/v1/spool/export")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") != exportType {
		t.Errorf("content type %s", resp.Header.Get("Content-Type"))
	}
	x, err := wire.NewExportReader(resp.Body)
	if err != nil || x.Head().Device != "dev1" || x.Head().Version != "1.2.3" || time.Since(time.UnixMilli(x.Head().Created)) > time.Hour {
		t.Fatalf("%+v, %v", x, err)
	}
	w.stop()
	for err == nil {
		_, _, err = x.Next()
	}
	if err == io.EOF {
		return // all of it was on its way already
	}
	io.Copy(io.Discard, resp.Body)
	if p := resp.Trailer.Get(problemTrailer); !errors.Is(err, wire.ErrTruncated) && !errors.Is(err, io.ErrUnexpectedEOF) || p != "" && !strings.Contains(p, `"code":"stopping"`) {
		t.Errorf("%v, trailer %q", err, p)
	}
}
