package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Failed says why the embedded server stores no more until it starts anew: after
// a write to a stream's files has failed it refuses all that follow, whatever
// becomes of the disk. It is nil while the server works, and with Config.URLs.
func (s *Store) Failed() error {
	if s.embedded == nil {
		return nil
	}
	if err := s.cfg.Fault("store:failed"); err != nil {
		return err
	}
	page := page{header: http.Header{}}
	req, err := http.NewRequest(http.MethodGet, "/healthz?details=true", nil)
	if err != nil {
		return fmt.Errorf("store: health of the embedded server: %w", err)
	}
	s.embedded.srv.HandleHealthz(&page, req)
	return failure(page.body.Bytes())
}

// failure finds what is for good in the server's word about its health. The rest
// of it comes and goes: a server that has not answered within a millisecond, as
// happens on a busy machine, and a stream that is just being made or removed,
// whose folder is there without it.
func failure(details []byte) error {
	var health struct {
		Errors []struct {
			Type  string `json:"type"`
			Error string `json:"error"`
		} `json:"errors"`
	}
	if err := json.Unmarshal(details, &health); err != nil {
		return fmt.Errorf("store: health of the embedded server: %w", err)
	}
	for _, e := range health.Errors {
		if e.Type == "JETSTREAM" || e.Type == "STREAM" && strings.Contains(e.Error, "write error") {
			return errors.New("store: " + e.Error) // one is as bad as all
		}
	}
	return nil
}

// page keeps what a handler writes.
type page struct {
	header http.Header
	body   bytes.Buffer
}

func (p *page) Header() http.Header         { return p.header }
func (p *page) Write(b []byte) (int, error) { return p.body.Write(b) }
func (p *page) WriteHeader(int)             {}
