package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/admin"
)

// Body is what a webhook is sent: application/json.
type Body struct {
	Webhook  string          `json:"webhook"`
	Stream   string          `json:"stream"`
	Messages []admin.Message `json:"messages"`
}

// delivery is one message of a batch.
type delivery struct {
	msg  jetstream.Msg
	seq  uint64 // in the stream that it was read from
	line admin.Message
	size int
}

const maxText = 200 // bytes of an answer that a person is shown

// post sends a batch. after is what the other side asks to wait before the next
// try, 0 if it does not say.
func (w *worker) post(ctx context.Context, batch []delivery) (after time.Duration, err error) {
	body := Body{Webhook: w.hook.Name, Stream: w.hook.Stream}
	for _, d := range batch {
		body.Messages = append(body.Messages, d.line)
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		return 0, fmt.Errorf("webhook %s: encode: %w", w.hook.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, w.hook.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.hook.URL, bytes.NewReader(buf.Bytes()))
	if err != nil {
		return 0, err
	}
	id := fmt.Sprintf("%s.%d-%d", w.from, batch[0].seq, batch[len(batch)-1].seq)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "fieldpost-hub")
	sign(req.Header, w.secret, id, w.now(), buf.Bytes())
	resp, err := w.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the URL, which may hold a secret
		}
		return 0, &unanswered{err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // the rest of it is of no interest
	status := printable([]byte(resp.Status))
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return 0, nil
	case err != nil:
		return 0, &unanswered{err}
	case code == http.StatusBadRequest || code == http.StatusRequestEntityTooLarge || code == http.StatusUnsupportedMediaType || code == http.StatusUnprocessableEntity:
		return 0, &refused{status, printable(text)}
	default:
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
			after = min(time.Duration(min(seconds, 3600))*time.Second, retryMost)
		}
		return after, fmt.Errorf("%s %s", status, printable(text))
	}
}

// unanswered is why there is no answer. The text may hold what the other side sent
// instead, of any size.
type unanswered struct{ err error }

func (e *unanswered) Error() string { return printable([]byte(e.err.Error())) }
func (e *unanswered) Unwrap() error { return e.err }

// printable is the beginning of an answer, for a log and a header.
func printable(text []byte) string {
	s := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return ' '
		}
		return r
	}, string(text[:min(len(text), maxText)]))
	return strings.TrimSpace(s)
}

// sign adds the headers of a Standard Webhooks request.
func sign(h http.Header, secret []byte, id string, now time.Time, body []byte) {
	at := strconv.FormatInt(now.Unix(), 10)
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", at)
	if secret == nil {
		return
	}
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%s.", id, at)
	mac.Write(body)
	h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}
