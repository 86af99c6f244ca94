package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/client"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// A group of back ends handles the readings of all devices. Any number of
// processes may run this: each message goes to one of them.
func ExampleClient_Consume() {
	url, stop := hubWith("edge.press-7.sensors.temp 21.5", "edge.press-7.alarm.door open", "edge.press-8.sensors.temp broken")
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	c, err := client.Connect(ctx, client.Config{URLs: []string{url}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	cfg := client.ConsumerConfig{Group: "averages", Filter: "edge.*.sensors.>", MaxInFlight: 1}
	err = c.Consume(ctx, cfg, func(_ context.Context, m *client.Message) error {
		if m.Seq == 3 {
			defer cancel() // of this example
		}
		v, err := strconv.ParseFloat(string(m.Payload), 64)
		if err != nil {
			fmt.Println(m.Device, "sends", string(m.Payload))
			return errors.Join(client.ErrTerminate, err) // no retry helps: to DEAD
		}
		fmt.Println(m.Device, m.Subject, v)
		return nil // acked
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// press-7 sensors.temp 21.5
	// press-8 sends broken
}

// Blocks as they came from the devices: the cheapest way to read everything.
func ExampleClient_ConsumeBatch() {
	url, stop := hubWith()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	c, err := client.Connect(ctx, client.Config{URLs: []string{url}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	err = c.ConsumeBatch(ctx, client.BatchConfig{Group: "archive", Filter: "sensors.>"}, func(_ context.Context, b *client.Batch) error {
		defer cancel() // of this example
		for m := range b.Messages() {
			fmt.Println(m.Device, m.Seq, m.Subject, string(m.Payload)) // valid until the next
		}
		return nil // the whole block is acked
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// press-7 1 sensors.temp 21.5
	// press-7 3 sensors.hum 40
}

// What was stored in the last hour, once more, and no group is kept on the server.
func ExampleClient_Replay() {
	url, stop := hubWith("edge.press-7.sensors.temp 21.5", "edge.press-8.sensors.temp 22")
	defer stop()
	ctx := context.Background()
	c, err := client.Connect(ctx, client.Config{URLs: []string{url}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	cfg := client.ReplayConfig{From: time.Now().Add(-time.Hour), Filter: "edge.press-8.>"}
	err = c.Replay(ctx, cfg, func(_ context.Context, m *client.Message) error {
		fmt.Println(m.Device, m.Subject, string(m.Payload))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// press-8 sensors.temp 22
}

// hubWith starts a server with a hub's streams, of which EDGE holds the given
// messages and BLOCKS one block.
func hubWith(messages ...string) (url string, stop func()) {
	dir, err := os.MkdirTemp("", "fieldpost-example")
	must(err)
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, JetStream: true, StoreDir: dir})
	must(err)
	go srv.Start()
	if !srv.ReadyForConnections(time.Minute) {
		log.Fatal("the server does not start")
	}
	nc, err := nats.Connect(srv.ClientURL(), nats.Timeout(time.Minute))
	must(err)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	must(err)
	ctx := context.Background()
	for name, subject := range map[string]string{"EDGE": "edge.>", "BLOCKS": "fp.blocks.*.*.*"} {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{subject}, AllowDirect: true})
		must(err)
	}
	for i, text := range messages {
		subject, payload, _ := strings.Cut(text, " ")
		_, err = js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: []byte(payload), Header: nats.Header{
			"Fieldpost-Epoch": {"1122334455667788"}, "Fieldpost-Seq": {strconv.Itoa(i + 1)}, "Fieldpost-Time": {"2026-01-02T03:04:05.678Z"},
		}})
		must(err)
	}
	flow := wire.Flow{Epoch: wire.Epoch{1}, Lane: wire.Normal}
	block, err := wire.NewEncoder(wire.Fast).Append(nil, &wire.Block{
		Header: wire.Header{Flow: flow, Kind: wire.KindMessages, Base: 1, First: 1},
		Messages: []wire.Message{
			{Subject: "sensors.temp", Payload: []byte("21.5")}, {Subject: "alarm.door", Payload: []byte("open")}, {Subject: "sensors.hum", Payload: []byte("40")},
		},
	})
	must(err)
	_, err = js.Publish(ctx, wire.BlockSubject("press-7", flow), block)
	must(err)
	return srv.ClientURL(), func() {
		nc.Close()
		srv.Shutdown()
		srv.WaitForShutdown()
		os.RemoveAll(dir)
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
