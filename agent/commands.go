package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fieldpost/fieldpost/agent/command"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// commandPath is followed by an id and what became of the command.
const commandPath = "/v1/commands/"

var settleRoute = route{"POST", nil, (*Agent).settleCommand}

// commandJSON is one line of GET /v1/commands.
type commandJSON struct {
	ID         string    `json:"id"`
	Subject    string    `json:"subject"`
	Payload    *string   `json:"payload,omitempty"`
	B64        []byte    `json:"payload_b64,omitempty"` // in the place of payload, if that is not UTF-8
	Deliveries int       `json:"deliveries"`            // this one included
	Sent       time.Time `json:"sent"`                  // by the hub's clock
	Expires    time.Time `json:"expires"`               // by this device's clock
}

func commandLine(d command.Delivery) commandJSON {
	out := commandJSON{
		ID: d.ID, Subject: d.Subject, Deliveries: d.Deliveries,
		Sent: d.Sent.UTC(), Expires: d.Expires.UTC().Truncate(time.Millisecond),
	}
	if utf8.Valid(d.Payload) {
		text := string(d.Payload)
		out.Payload = &text
	} else {
		out.B64 = d.Payload
	}
	return out
}

// subscribe is GET /v1/commands.
func (a *Agent) subscribe(w http.ResponseWriter, r *http.Request) *problem {
	filter := r.URL.Query().Get("filter")
	if filter == "" {
		filter = ">"
	}
	if err := wire.CheckFilter(filter); err != nil {
		return newProblem(codeBadSubject, "%v", err)
	}
	atOnce := 1
	if text := r.URL.Query().Get("max"); text != "" {
		var err error
		if atOnce, err = strconv.Atoi(text); err != nil || atOnce < 1 || atOnce > command.MaxAtOnce {
			return newProblem(codeBadRequest, "max %q is not a number of commands to have at a time, from 1 to %d", text, command.MaxAtOnce)
		}
	}
	if _, p := a.gate.enter(); p != nil {
		return p
	}
	a.gate.leave() // the stream ends by itself when the agent stops
	sub, err := a.commands.Subscribe(filter, atOnce)
	if err != nil {
		return newProblem(codeQuota, "%v; end one, or let one take more at once", err)
	}
	defer sub.Close()
	events := strings.Contains(r.Header.Get("Accept"), "text/event-stream")
	w.Header().Set("Content-Type", "application/x-ndjson")
	if events {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	w.WriteHeader(http.StatusOK)
	if http.NewResponseController(w).Flush() != nil || r.Method == http.MethodHead {
		return nil
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-a.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		d, err := sub.Next(ctx)
		if err != nil || a.showCommand(w, events, d) != nil {
			return nil // the reader is gone, or the agent stops
		}
	}
}

func (a *Agent) showCommand(w http.ResponseWriter, events bool, d command.Delivery) error {
	var out bytes.Buffer
	if events {
		fmt.Fprintf(&out, "id: %s\ndata: ", d.ID)
	}
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(commandLine(d)); err != nil {
		return err
	}
	if events {
		out.WriteByte('\n')
	}
	rc := http.NewResponseController(w)
	if err := rc.SetWriteDeadline(time.Now().Add(a.cfg.BodyTimeout)); err != nil {
		return err
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return err
	}
	return rc.Flush()
}

// settleCommand is POST /v1/commands/{id}/ack, nak and term.
func (a *Agent) settleCommand(w http.ResponseWriter, r *http.Request) *problem {
	id, verb, ok := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), commandPath), "/")
	if !ok || verb != "ack" && verb != "nak" && verb != "term" {
		return newProblem(codeNotFound, "%s is not a path of this API; a command is answered by %s{id}/ack, nak or term", r.URL.Path, commandPath)
	}
	bd, p := a.readBody(w, r, wire.MaxCommandResult, "what a result or a reason may have")
	if p != nil {
		return p
	}
	defer bd.release(a)
	if _, p := a.gate.enter(); p != nil {
		return p
	}
	defer a.gate.leave()
	var err error
	switch verb {
	case "ack":
		err = a.commands.Ack(id, bd.b)
	case "nak":
		err = a.commands.Nak(id, string(bd.b))
	case "term":
		err = a.commands.Term(id, string(bd.b))
	}
	var other *command.SettledError
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
		return nil
	case errors.Is(err, command.ErrUnknown):
		return newProblem(codeNotFound, "no command %.80q is known here: it never was, or was settled long ago", id)
	case errors.As(err, &other):
		return newProblem(codeSettled, "command %s is %s already, so that %s has no effect", id, other.State, verb)
	}
	return problemOf(err)
}

// commandsJSON is the part of GET /v1/status.
type commandsJSON struct {
	Pending int    `json:"pending"` // not settled, the leased ones included
	Leased  int    `json:"leased"`  // a program has them
	Reports int    `json:"reports"` // that the hub has not noted yet
	Bytes   int    `json:"bytes"`   // of the 8 MiB that pending ones may take
	Error   string `json:"error,omitempty"`
}

func (a *Agent) commandsStatus() commandsJSON {
	st := a.commands.Status()
	out := commandsJSON{Pending: st.Pending, Leased: st.Leased, Reports: st.Reports, Bytes: st.Bytes}
	if st.Err != nil {
		out.Error = st.Err.Error()
	}
	return out
}
