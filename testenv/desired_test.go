package testenv

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// wants runs `desired set … --wait` and returns what it prints.
func (w *World) wants(args ...string) (string, error) {
	w.TB.Helper()
	out, err := exec.Command(w.Binaries.Hub, append(append([]string{"desired", "set"}, args...), "--http", w.HTTP)...).CombinedOutput()
	return string(out), err
}

// desired is what a program on the device is told.
func (a *Agent) desired() (string, error) {
	resp, err := a.http.Get("http://agent/v1/desired")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var d struct {
		State    string
		Document json.RawMessage
	}
	err = json.NewDecoder(resp.Body).Decode(&d)
	return d.State + " " + string(d.Document), err
}

func (a *Agent) has(want string) {
	a.tb.Helper()
	Eventually(a.tb, 30*time.Second, a.Device+" has its settings", func() error {
		if got, err := a.desired(); got != want {
			return fmt.Errorf("%s, %v", got, err)
		}
		return nil
	})
}

// What is set at the hub for a device and for its labels comes to it, also if it
// was away, and survives the death of either.
func TestDesired(t *testing.T) {
	short(t)
	w := NewWorld(t, "")
	a := w.AddAgent("press-7", "labels: {site: north}\nlog: {level: error}\n")
	if out, err := w.wants("press-7", `{"agent":{"log":{"level":"debug"}},"pump":{"speed":3}}`, "--wait"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	a.has(`applied {"agent":{"log":{"level":"debug"}},"pump":{"speed":3}}`)
	if err := a.setClass("metered"); err != nil {
		t.Fatal(err)
	}
	if log := string(tail(a.log, 100_000)); !strings.Contains(log, "link class set") { // at level info
		t.Errorf("the log's level is not what was wanted:\n%s", log)
	}
	if out, err := w.wants("press-7", `{"agent":{"spool":{"max_bytes":"1GiB"}}}`); err == nil || !strings.Contains(out, "spool") {
		t.Errorf("a member that cannot be set from afar: %v\n%s", err, out)
	}
	if out, err := w.wants("press-7", `{"agent":{"log":{"level":"loud"}}}`, "--wait"); err == nil || !strings.Contains(out, "loud") {
		t.Errorf("a level that there is not: %v\n%s", err, out)
	}
	a.has(`refused {"agent":{"log":{"level":"debug"}},"pump":{"speed":3}}`)

	a.Kill()
	if out, err := w.wants("--label", "site=north", `{"agent":{"lanes":[{"match":"alarm.>","lane":"urgent"}]},"pump":{"speed":4}}`); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := w.wants("press-7", `{"valve":"open"}`); err != nil { // written later: over the label's
		t.Fatalf("%v\n%s", err, out)
	}
	w.Hub.Kill()
	w.StartHub()
	a.Start()
	w.WaitAgent(a)
	const all = `applied {"agent":{"lanes":[{"lane":"urgent","match":"alarm.>"}]},"pump":{"speed":4},"valve":"open"}`
	a.has(all)
	if err := a.Post("/v1/publish/alarm.door", "open"); err != nil {
		t.Fatal(err)
	}
	w.Drain(30 * time.Second)
	js, closes, err := w.jetStream()
	if err != nil {
		t.Fatal(err)
	}
	defer closes()
	stream, err := js.Stream(t.Context(), "EDGE")
	if err != nil {
		t.Fatal(err)
	}
	Eventually(t, 30*time.Second, "an alarm is unpacked", func() error {
		m, err := stream.GetLastMsgForSubject(t.Context(), "edge.press-7.alarm.door")
		if err == nil && m.Header.Get("Fieldpost-Lane") != "urgent" {
			t.Fatalf("an alarm went as %v", m.Header)
		}
		return err
	})
	w.Hub.Kill() // what is in effect does not need it
	a.Kill()
	a.Start()
	w.WaitAgent(a)
	a.has(all)
}
