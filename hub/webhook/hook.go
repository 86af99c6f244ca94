package webhook

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Hook is one webhook. The zero value of a field that has a default is it.
type Hook struct {
	Name       string        // 1 to 50 of A-Z a-z 0-9 _ -
	URL        string        // http or https
	Stream     string        // of a route
	Filter     string        // on the stream's subjects; empty: all
	SecretFile string        // whsec_<base64>, or any text; empty: unsigned
	Batch      int           // messages of a request at most; 100
	Wait       time.Duration // for a batch to fill; 1s
	Timeout    time.Duration // of a request; 10s
	MaxDeliver int           // deliveries of a message; 0: no limit
}

// maxBody bounds a request: a batch ends early when it is reached.
const maxBody = 4 << 20

// WithDefaults returns h with every zero value replaced by its default.
func (h Hook) WithDefaults() Hook {
	if h.Batch == 0 {
		h.Batch = 100
	}
	if h.Wait == 0 {
		h.Wait = time.Second
	}
	if h.Timeout == 0 {
		h.Timeout = 10 * time.Second
	}
	return h
}

var hookName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,50}$`)

// Check calls bad for each key that is wrong, but for Stream and Filter.
func (h Hook) Check(bad func(key, problem string)) {
	if !hookName.MatchString(h.Name) {
		bad("name", fmt.Sprintf("%q is not 1 to 50 of A-Z a-z 0-9 _ -", h.Name))
	}
	if u, err := url.Parse(h.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		bad("url", "is not like https://billing.example/fieldpost")
	}
	if h.Batch < 1 || h.Batch > 1000 {
		bad("batch", fmt.Sprintf("%d is not 1 to 1000", h.Batch))
	}
	if h.Wait < time.Millisecond || h.Wait > time.Minute {
		bad("wait", fmt.Sprintf("%s is not 1ms to 1m", h.Wait))
	}
	if h.Timeout < time.Second || h.Timeout > 5*time.Minute {
		bad("timeout", fmt.Sprintf("%s is not 1s to 5m", h.Timeout))
	}
	if h.MaxDeliver < 0 {
		bad("max_deliver", fmt.Sprintf("%d is negative; 0 is no limit", h.MaxDeliver))
	}
}

// Place is where a webhook goes: its URL without what may be secret, and the path
// is with many.
func (h Hook) Place() string {
	u, err := url.Parse(h.URL)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// secret reads the key of the signature; nil if there is none.
func (h Hook) secret() ([]byte, error) {
	if h.SecretFile == "" {
		return nil, nil
	}
	b, err := os.ReadFile(h.SecretFile)
	if err != nil {
		return nil, fmt.Errorf("webhook %s: secret_file: %w", h.Name, err)
	}
	text := strings.TrimSpace(string(b))
	if text == "" {
		return nil, fmt.Errorf("webhook %s: secret_file %s is empty", h.Name, h.SecretFile)
	}
	if key, ok := strings.CutPrefix(text, "whsec_"); ok {
		b, err := base64.StdEncoding.DecodeString(key)
		if err != nil {
			return nil, fmt.Errorf("webhook %s: secret_file %s: what follows whsec_ is not base64: %w", h.Name, h.SecretFile, err)
		}
		return b, nil
	}
	return []byte(text), nil
}

// Consumer is the name of the webhook's consumers, of its stream and of RETRY.
func (h Hook) Consumer() string { return "webhook-" + h.Name }

// consumer is the webhook's place in its stream.
func (h Hook) consumer() jetstream.ConsumerConfig {
	cfg := jetstream.ConsumerConfig{
		Durable: h.Consumer(), Description: "Fieldpost: webhook to " + h.Place(),
		AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverAllPolicy,
		AckWait: 2*h.Timeout + h.Wait + 10*time.Second, MaxAckPending: h.Batch, MaxDeliver: -1,
	}
	if h.MaxDeliver > 0 {
		cfg.MaxDeliver = h.MaxDeliver
	}
	if h.Filter != "" && h.Filter != ">" {
		cfg.FilterSubject = h.Filter
	}
	return cfg
}

// retries is its place among the letters of DEAD that are offered once more.
func (h Hook) retries() jetstream.ConsumerConfig {
	cfg := h.consumer()
	cfg.FilterSubject = "retry." + h.Consumer()
	return cfg
}

// refused is an answer that will not change: the messages are the reason.
type refused struct{ status, text string }

func (e *refused) Error() string { return strings.TrimSpace(e.status + " " + e.text) }

func isRefused(err error) bool {
	var r *refused
	return errors.As(err, &r)
}
