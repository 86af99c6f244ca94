package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func goodCommandRequest() CommandRequest {
	return CommandRequest{HubID: "h", Stream: "s", After: 7, Room: 1024, Reports: []CommandReport{
		{ID: "c1", State: CommandDelivered, At: 1}, {ID: "c2", State: CommandFailed, At: 2, Deliveries: 3, Reason: "no such valve", Result: []byte("x\x00")},
	}}
}

func goodCommandReply() CommandReply {
	return CommandReply{Stream: "s", Next: 12, More: true, Noted: []string{"c1"}, Cancel: []string{"c2"}, Time: 5, Commands: []Command{
		{ID: "c3", Seq: 8, Subject: "valve.set", Payload: []byte(`{"open":true}`), Sent: 3, TTL: 1000, AckWait: 30_000, MaxDeliver: 10},
		{ID: "c4", Seq: 12, Subject: "x", AckWait: 1, MaxDeliver: 1},
	}}
}

// The JSON is the protocol: a key that is renamed is another one.
func TestCommandGolden(t *testing.T) {
	for want, v := range map[string]any{
		`{"hub_id":"h","stream":"s","after":7,"room":1024,"reports":[{"id":"c1","state":"delivered","at":1},` +
			`{"id":"c2","state":"failed","at":2,"deliveries":3,"reason":"no such valve","result":"eAA="}]}`: goodCommandRequest(),
		`{"stream":"s","commands":[{"id":"c3","seq":8,"subject":"valve.set","payload":"eyJvcGVuIjp0cnVlfQ==","sent":3,"ttl_ms":1000,"ack_wait_ms":30000,"max_deliver":10},` +
			`{"id":"c4","seq":12,"subject":"x","sent":0,"ttl_ms":0,"ack_wait_ms":1,"max_deliver":1}],"next":12,"more":true,"noted":["c1"],"cancel":["c2"],"time":5}`: goodCommandReply(),
		`{"error":{"code":"wrong_hub","detail":"this is hub h"},"next":0,"time":5}`: CommandReply{Error: &SessionError{CodeWrongHub, "this is hub h"}, Time: 5},
	} {
		got, err := json.Marshal(v)
		if err != nil || string(got) != want {
			t.Errorf("%s\nwant %s (%v)", got, want, err)
		}
		var back any
		if _, ok := v.(CommandRequest); ok {
			r, err := ParseCommandRequest(got)
			if err != nil {
				t.Fatal(err)
			}
			back = *r
		} else {
			r, err := ParseCommandReply(got)
			if err != nil {
				t.Fatal(err)
			}
			back = *r
		}
		if !reflect.DeepEqual(back, v) {
			t.Errorf("%+v became %+v", v, back)
		}
	}
}

func TestCommandRequestIsChecked(t *testing.T) {
	for i, change := range []func(*CommandRequest){
		func(r *CommandRequest) { r.HubID = "" },
		func(r *CommandRequest) { r.HubID = "a.b" },
		func(r *CommandRequest) { r.Stream = "*" },
		func(r *CommandRequest) { r.Room = -1 },
		func(r *CommandRequest) { r.Reports = make([]CommandReport, MaxCommandReports+1) },
		func(r *CommandRequest) { r.Reports[0].ID = "a.*" },
		func(r *CommandRequest) { r.Reports[0].State = CommandPending },
		func(r *CommandRequest) { r.Reports[0].State = "done" },
		func(r *CommandRequest) { r.Reports[0].At = -1 },
		func(r *CommandRequest) { r.Reports[0].At = MaxTime + 1 },
		func(r *CommandRequest) { r.Reports[0].Deliveries = -1 },
		func(r *CommandRequest) { r.Reports[0].Reason = "a\nb" },
		func(r *CommandRequest) { r.Reports[0].Reason = strings.Repeat("x", maxText+1) },
		func(r *CommandRequest) { r.Reports[0].Result = make([]byte, MaxCommandResult+1) },
	} {
		r := goodCommandRequest()
		change(&r)
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseCommandRequest(data); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if _, err := ParseCommandRequest(bytes.Repeat([]byte(" "), MaxCommandMessage+1)); !errors.Is(err, ErrLimit) {
		t.Errorf("too long: %v", err)
	}
	// Keys that a newer device sends are ignored.
	if _, err := ParseCommandRequest([]byte(`{"hub_id":"h","newer":{"x":[1]}}`)); err != nil {
		t.Error(err)
	}
}

func TestCommandReplyIsChecked(t *testing.T) {
	for i, change := range []func(*CommandReply){
		func(r *CommandReply) { r.Stream = "" },
		func(r *CommandReply) { r.Commands = make([]Command, MaxCommandBatch+1) },
		func(r *CommandReply) { r.Commands[0].ID = "" },
		func(r *CommandReply) { r.Commands[0].Seq = 0 },
		func(r *CommandReply) { r.Commands[1].Seq = 8 },
		func(r *CommandReply) { r.Next = 11 },
		func(r *CommandReply) { r.Commands[0].Subject = "a.>" },
		func(r *CommandReply) { r.Commands[0].Payload = make([]byte, MaxCommand+1) },
		func(r *CommandReply) { r.Commands[0].TTL = -1 },
		func(r *CommandReply) { r.Commands[0].AckWait = 0 },
		func(r *CommandReply) { r.Commands[0].MaxDeliver = 0 },
		func(r *CommandReply) { r.Noted = []string{"a b"} },
		func(r *CommandReply) { r.Cancel = []string{strings.Repeat("x", maxName+1)} },
		func(r *CommandReply) { r.Error = &SessionError{} },
		func(r *CommandReply) { r.Error = &SessionError{Code: "x", Detail: "a\x00"} },
	} {
		r := goodCommandReply()
		change(&r)
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseCommandReply(data); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func TestCommandStates(t *testing.T) {
	var final []string
	for _, s := range []CommandState{CommandPending, CommandDelivered, CommandAcked, CommandFailed, CommandExpired, CommandCancelled, "", "other"} {
		if s.Settled() {
			final = append(final, string(s))
		}
	}
	if got := fmt.Sprint(final); got != "[acked failed expired cancelled]" {
		t.Error(got)
	}
}

func FuzzCommandRequest(f *testing.F) {
	good, _ := json.Marshal(goodCommandRequest())
	f.Add(good)
	f.Fuzz(func(t *testing.T, data []byte) { checkJSON(t, data, ParseCommandRequest) })
}

func FuzzCommandReply(f *testing.F) {
	good, _ := json.Marshal(goodCommandReply())
	f.Add(good)
	f.Add([]byte(`{"error":{"code":"refused","detail":"wait"},"next":0,"time":1}`))
	f.Fuzz(func(t *testing.T, data []byte) { checkJSON(t, data, ParseCommandReply) })
}
