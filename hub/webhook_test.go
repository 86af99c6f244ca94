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
