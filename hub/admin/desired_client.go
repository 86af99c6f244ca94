package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
)

// DesiredTarget is one device, or all that have a label.
type DesiredTarget struct {
	Device string
	Label  string // site=north, if Device is empty
}

func (t DesiredTarget) path() string {
	if t.Device != "" {
		return "/v1/devices/" + url.PathEscape(t.Device) + "/desired"
	}
	return "/v1/desired?" + url.Values{"label": {t.Label}}.Encode()
}

// DesiredChange is what is to become of a document.
type DesiredChange struct {
	Document json.RawMessage // nil: it is removed
	Merge    bool            // RFC 7396, instead of replacing what is there
	Revision *uint64         // that it has to have now; 0: there is none; nil: any
}

// SetDesired changes the document of a device or of a label, and returns it when it
// is durable. The error is a *Problem with code changed if it has another revision.
func (c *Client) SetDesired(ctx context.Context, t DesiredTarget, ch DesiredChange) (DesiredDocument, error) {
	method := http.MethodPut
	switch {
	case ch.Document == nil:
		method = http.MethodDelete
	case ch.Merge:
		method = http.MethodPatch
	}
	var out DesiredDocument
	req, err := http.NewRequestWithContext(ctx, method, c.base+t.path(), bytes.NewReader(ch.Document))
	if err != nil {
		return out, err
	}
	req.Header.Set("Content-Type", "application/json")
	if ch.Revision != nil {
		req.Header.Set("If-Match", strconv.FormatUint(*ch.Revision, 10))
	}
	body, err := c.do(c.http, req)
	if err != nil {
		return out, err
	}
	return out, c.read(t.path(), body, &out)
}

// DesiredDevice asks what is wanted of a device, and what became of it.
func (c *Client) DesiredDevice(ctx context.Context, device string) (DesiredDevice, error) {
	var out DesiredDevice
	return out, c.get(ctx, DesiredTarget{Device: device}.path(), nil, &out)
}

// DesiredLabel asks what was set for a label, and what became of it at its devices.
func (c *Client) DesiredLabel(ctx context.Context, label string) (DesiredLabel, error) {
	var out DesiredLabel
	return out, c.get(ctx, "/v1/desired", url.Values{"label": {label}}, &out)
}

// DesiredList asks for one page of what is set; after is what Next of a page was.
func (c *Client) DesiredList(ctx context.Context, after string, limit int) (DesiredList, error) {
	v := url.Values{}
	if after != "" {
		v.Set("after", after)
	}
	if limit > 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
	var out DesiredList
	return out, c.get(ctx, "/v1/desired", v, &out)
}
