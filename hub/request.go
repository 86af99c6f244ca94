package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
)

// foreign reports whether a browser sends r for a page that is not of this hub.
// What listens on loopback can be reached by every page that is open here. Only
// an IP address or localhost counts as this hub: a name could be another site's
// that was made to point here.
func foreign(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host != r.Host {
		return true
	}
	host := u.Hostname()
	_, err = netip.ParseAddr(host)
	return err != nil && host != "localhost"
}

// own answers requests of other sites' pages, to what changes something.
func own(w http.ResponseWriter, r *http.Request) bool {
	if foreign(r) {
		problem(w, http.StatusForbidden, "forbidden", "pages of other sites change nothing here; use the hub's address as an IP address or localhost, or `fieldpost-hub`")
		return false
	}
	return true
}

// readJSON reads the body into v, or answers what is wrong with it; like shows
// one that is right.
func readJSON(w http.ResponseWriter, r *http.Request, v any, like string) bool {
	if !own(w, r) {
		return false
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		problem(w, http.StatusUnsupportedMediaType, "bad_request", "the body is JSON like "+like+"; send Content-Type: application/json")
		return false
	}
	dec := json.NewDecoder(r.Body) // bounded by the server
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil {
		if _, e := dec.Token(); !errors.Is(e, io.EOF) {
			err = errors.New("something follows the object")
		}
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		problem(w, http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("the body is larger than %d bytes; send less at once", large.Limit))
	case err != nil:
		problem(w, http.StatusBadRequest, "bad_request", fmt.Sprintf("the body is not like %s: %v", like, err))
	}
	return err == nil
}
