package hub

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// exported is a portable file of the blocks of a device's flow.
func exported(t *testing.T, d *fakeDevice, hubID string, blocks ...[]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	head := wire.ExportHead{Device: d.name, HubID: hubID, Created: 1, Flows: []wire.FlowHeld{{Flow: d.flow, Base: 1, First: 1, Last: d.next - 1}}}
	x, err := wire.NewExportWriter(&out, head)
	for _, b := range blocks {
		err = errors.Join(err, x.Block(b))
	}
	if err = errors.Join(err, x.End()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestImportedMessagesAreUnpackedAndNotSentAgain(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	a := r.admin()
	d := newDevice(r, "press-7")
	blocks := [][]byte{d.block("one", "two"), d.block("three"), d.block(strings.Repeat("x", 100_000))}
	data := exported(t, d, "", blocks...)
	for i := range 2 { // twice
		out, err := a.Import(t.Context(), bytes.NewReader(data), false)
		if err != nil || out.Device != "press-7" || out.Stored.Messages+out.Already.Messages != 4 || out.Already.Messages != uint64(4*i) {
			t.Fatalf("%+v, %v", out, err)
		}
	}
	if got := edge(t, d.nc, "press-7", 4); len(got) != 4 || !slices.Equal(got[:3], []string{"one", "two", "three"}) {
		t.Errorf("EDGE holds %.80q", got)
	}
	shown, err := a.Device(t.Context(), "press-7")
	if err != nil || shown.Online || shown.Imported.IsZero() || shown.Clones != nil {
		t.Errorf("the registry shows %+v, %v", shown, err)
	}
	d.open()
	if got := d.reply.Received; len(got) != 1 || got[0].Ranges.String() != "1-4" || d.reply.Notice != "" {
		t.Errorf("the device is told %+v, notice %q", got, d.reply.Notice)
	}
}

func TestImportRefuses(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	a := r.admin()
	d := newDevice(r, "press-7")
	var blocks [][]byte
	for i := range 200 {
		blocks = append(blocks, d.block(fmt.Sprint(i), strings.Repeat("x", 5000)))
	}
	data := exported(t, d, "", blocks...)
	problem := func(what string, data []byte, code string, status int, text string) {
		t.Helper()
		_, err := a.Import(t.Context(), bytes.NewReader(data), false)
		var p *admin.Problem
		if !errors.As(err, &p) || p.Code != code || p.Status != status || !strings.Contains(p.Detail, text) {
			t.Errorf("%s: %v", what, err)
		}
	}
	problem("no file", []byte("hello, world"), "bad_file", 400, "not a file of")
	problem("another hub", exported(t, d, "hub-x", blocks...), "wrong_hub", 409, "--force")
	problem("cut off", data[:len(data)/2], "bad_file", 400, "messages were stored and 0 were there already")
	bad := bytes.Clone(data)
	bad[1000] ^= 1
	problem("damaged, with more to come", bytes.Join([][]byte{bad, make([]byte, 8<<20)}, nil), "bad_file", 400, "checksum")
	if out, err := a.Import(t.Context(), bytes.NewReader(exported(t, d, "hub-x", blocks...)), true); err != nil || out.Already.Messages == 0 || out.Stored.Messages+out.Already.Messages != 400 {
		t.Errorf("forced: %+v, %v", out, err)
	}
	if got := edge(t, d.nc, "press-7", 400); len(got) != 400 {
		t.Errorf("EDGE holds %d messages", len(got))
	}

	url := "http://" + r.Addrs().HTTP + "/v1/import"
	for name, c := range map[string]struct {
		method, query, kind, origin string
		want                        int
	}{
		"a form":     {"POST", "", "application/x-www-form-urlencoded", "", 415},
		"a web page": {"POST", "", admin.ExportType, "http://evil.example", 403},
		"get":        {"GET", "", "", "", 405},
		"force":      {"POST", "?force=maybe", admin.ExportType, "", 400},
	} {
		req, err := http.NewRequest(c.method, url+c.query, bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", c.kind)
		if c.origin != "" {
			req.Header.Set("Origin", c.origin)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s: %s", name, resp.Status)
		}
	}
	for range maxImports {
		r.imports <- struct{}{}
	}
	problem("too many", data, "quota", 429, "wait for one")
}
