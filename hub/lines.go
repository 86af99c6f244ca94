package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/admin"
)

// sseAlive is how often an idle event stream shows that it lives; proxies give up
// on what is silent for a minute.
const sseAlive = 15 * time.Second

// lineOptions say how messages are sent to an HTTP client, and for how long.
type lineOptions struct {
	events bool          // server-sent events; else a JSON object a line
	limit  int           // messages; 0: no limit
	wait   time.Duration // nothing new for so long ends the answer; 0: it goes on
}

// lineForm reads ?limit= and ?wait=, and what the client accepts.
func lineForm(r *http.Request) (o lineOptions, err error) {
	q := r.URL.Query()
	o.events = strings.Contains(r.Header.Get("Accept"), "text/event-stream")
	if s := q.Get("limit"); s != "" {
		if o.limit, err = strconv.Atoi(s); err != nil || o.limit < 1 {
			return o, fmt.Errorf("limit %q is not a number from 1 on", s)
		}
	}
	if s := q.Get("wait"); s != "" {
		if o.wait, err = time.ParseDuration(s); err != nil || o.wait <= 0 {
			return o, fmt.Errorf("wait %q is not a duration such as 10s", s)
		}
	}
	return o, nil
}

// asked reads how the answer is wanted, or answers what is wrong with the request:
// err, if there is one, or that.
func asked(w http.ResponseWriter, r *http.Request, err error) (o lineOptions, ok bool) {
	if err == nil {
		o, err = lineForm(r)
	}
	if err != nil {
		problem(w, http.StatusBadRequest, "bad_request", err.Error())
	}
	return o, err == nil
}

// lineOf is a stored message as clients see it.
func lineOf(m jetstream.Msg, meta *jetstream.MsgMetadata) admin.Message {
	return admin.NewMessage(m.Subject(), m.Headers(), m.Data(), meta.Sequence.Stream, meta.Timestamp)
}

// sendLines writes messages until there are no more, the client is gone or takes
// nothing for answerTimeout. It reports whether the answer is complete as far as
// the options say: what ends early must not look so.
func sendLines(ctx context.Context, w http.ResponseWriter, lines <-chan admin.Message, o lineOptions) (complete bool) {
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	if o.events {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	// The server's read deadline is for requests; here it would end the answer.
	if rc.SetReadDeadline(time.Time{}) != nil || rc.Flush() != nil {
		return false
	}
	last := time.Now()
	quiet := time.NewTimer(o.quietSince(last))
	defer quiet.Stop()
	for sent := 0; ; {
		select {
		case <-ctx.Done():
			return false
		case <-quiet.C:
			if o.wait > 0 && time.Since(last) >= o.wait {
				return true
			}
			quiet.Reset(o.quietSince(last))
			if o.events && (rc.SetWriteDeadline(time.Now().Add(answerTimeout)) != nil || writeComment(w) != nil || rc.Flush() != nil) {
				return false
			}
		case m, ok := <-lines:
			if !ok {
				return false
			}
			if rc.SetWriteDeadline(time.Now().Add(answerTimeout)) != nil || o.write(w, m) != nil {
				return false
			}
			if len(lines) == 0 && rc.Flush() != nil {
				return false
			}
			if sent++; sent == o.limit {
				return true
			}
			last = time.Now()
			quiet.Reset(o.quietSince(last))
		}
	}
}

// quietSince is how long to wait for a message before something else is due.
func (o lineOptions) quietSince(last time.Time) time.Duration {
	if o.wait > 0 {
		return max(min(o.wait-time.Since(last), sseAlive), 0)
	}
	return sseAlive
}

func writeComment(w io.Writer) error {
	_, err := io.WriteString(w, ":\n\n")
	return err
}

func (o lineOptions) write(w io.Writer, m admin.Message) error {
	if o.events {
		begin := fmt.Sprintf("id: %d\ndata: ", m.Seq)
		if m.Ack != "" { // a group knows where it is, and a retry has another place
			begin = "data: "
		}
		if _, err := io.WriteString(w, begin); err != nil {
			return err
		}
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m); err != nil {
		return err
	}
	if o.events {
		_, err := io.WriteString(w, "\n")
		return err
	}
	return nil
}
