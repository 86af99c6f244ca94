package hub

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/fieldpost/fieldpost/hub/webhook"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestWebhookGetsMessages: from the device to the URL.
func TestWebhookGetsMessages(t *testing.T) {
	var mu sync.Mutex
	var got []string
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var b webhook.Body
		if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
			t.Errorf("request: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, m := range b.Messages {
			got = append(got, m.Subject+"="+string(m.Payload))
		}
	}))
	t.Cleanup(endpoint.Close)
	cfg := testConfig(t.TempDir())
	cfg.Webhooks = []webhook.Hook{{Name: "billing", URL: endpoint.URL, Filter: "edge.press-7.>"}}
	r := start(t, cfg)
	for _, device := range []string{"press-6", "press-7"} {
		d := newDevice(r, device)
		d.open()
		d.send(wire.FrameBlock, d.block("one", "two"))
		d.acked()
	}
	eventually(t, "the webhook has what it asked for", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) >= 2
	})
	mu.Lock()
	text := strings.Join(got, " ")
	mu.Unlock()
	if strings.Count(text, "edge.press-7.") != 2 || !strings.HasSuffix(text, "=two") || strings.Contains(text, "press-6") {
		t.Errorf("got %s", text)
	}
	eventually(t, "status and metrics show it", func() bool {
		st, err := r.admin().Status(t.Context())
		_, page := r.get("/metrics")
		return err == nil && len(st.Webhooks) == 1 && st.Webhooks[0].Error == "" &&
			strings.Contains(page, `fieldpost_hub_webhook_messages_total{webhook="billing",result="delivered"} 2`)
	})
}

// TestRefusedByWebhookAndRetried: into DEAD with the answer as its detail, and
// from there to the URL once more.
func TestRefusedByWebhookAndRetried(t *testing.T) {
	var mu sync.Mutex
	var got []string
	taken := false // guarded by mu: the other side has learned to take it
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b webhook.Body
		if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
			t.Errorf("request: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, m := range b.Messages {
			if string(m.Payload) == "bad" && !taken {
				http.Error(w, "not a number", http.StatusUnprocessableEntity)
				return
			}
		}
		for _, m := range b.Messages {
			got = append(got, string(m.Payload))
		}
	}))
	t.Cleanup(endpoint.Close)
	cfg := testConfig(t.TempDir())
	cfg.Webhooks = []webhook.Hook{{Name: "billing", URL: endpoint.URL}}
	r := start(t, cfg)
	d := newDevice(r, "press-7")
	d.open()
	d.send(wire.FrameBlock, d.block("one", "bad", "two"))
	d.acked()
	var page string
	eventually(t, "the letter is there", func() bool {
		_, page = r.get("/v1/dead?consumer=webhook-billing")
		return strings.Contains(page, `"reason":"terminated"`)
	})
	if !strings.Contains(page, "webhook billing: 422 Unprocessable Entity not a number") {
		t.Errorf("letter: %s", page)
	}
	mu.Lock()
	taken = true
	mu.Unlock()
	if code, body := r.post("/v1/dead/retry", "application/json", `{"all":true,"consumer":"webhook-billing"}`); code != http.StatusOK {
		t.Fatalf("retry: %d %s", code, body)
	}
	eventually(t, "it is delivered", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(got, " ") == "one two bad"
	})
}
