package client

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/fieldpost/fieldpost/hub/admin"
)

// A list that its hub did not know whole ends with an error, even if the last page
// was complete.
func TestDevicesOfAHubThatLoads(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("after") == "" {
			w.Write([]byte(`{"devices":[{"device":"a"}],"next":"a","loading":true}`))
			return
		}
		w.Write([]byte(`{"devices":[{"device":"b"}]}`))
	}))
	defer srv.Close()
	a, err := admin.New(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := &Client{admin: a, life: t.Context()}
	var names []string
	var last error
	for d, err := range c.Devices(t.Context(), "") {
		if last = err; err == nil {
			names = append(names, d.Device)
		}
	}
	if len(names) != 2 || !errors.Is(last, ErrDevicesLoading) {
		t.Errorf("%v, %v", names, last)
	}
}
