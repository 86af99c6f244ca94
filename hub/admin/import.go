package admin

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// Import sends a portable file and returns when all of it is stored. What the
// hub refuses is a *Problem; what it had stored before stays. force takes the
// file of another hub.
func (c *Client) Import(ctx context.Context, file io.Reader, force bool) (Imported, error) {
	const path = "/v1/import"
	u := c.base + path
	if force {
		u += "?force=true"
	}
	var out Imported
	// Not a type of which http knows the length: it is sent in chunks, and not closed.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u, io.NopCloser(file))
	if err != nil {
		return out, err
	}
	req.Header.Set("Content-Type", ExportType)
	patient := c.http.Transport.(*http.Transport).Clone()
	patient.ResponseHeaderTimeout = 0 // the answer comes when the ledger has it
	defer patient.CloseIdleConnections()
	body, err := c.do(&http.Client{Transport: patient}, req)
	if err != nil {
		return out, fmt.Errorf("import: %w", err)
	}
	return out, c.read(path, body, &out)
}
