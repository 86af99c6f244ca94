package clitest

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"
)

// backend ADDRESS STREAM CONSUMER FILTER term|ack [WORDS] is a back end that takes
// one message and says so, or never will.
func backend(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 5 {
		ts.Fatalf("usage: backend ADDRESS STREAM CONSUMER FILTER term|ack [WORDS]")
	}
	nc, err := nats.Connect("nats://" + args[0])
	ts.Check(err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := js.CreateOrUpdateConsumer(ctx, args[1], jetstream.ConsumerConfig{Durable: args[2], FilterSubject: args[3], AckPolicy: jetstream.AckExplicitPolicy})
	ts.Check(err)
	m, err := c.Next(jetstream.FetchMaxWait(time.Minute))
	ts.Check(err)
	ts.Logf("%s %q", m.Subject(), m.Data())
	if args[4] == "ack" {
		ts.Check(m.DoubleAck(ctx))
		return
	}
	ts.Check(m.TermWithReason(strings.Join(args[5:], " ")))
	ts.Check(nc.FlushWithContext(ctx))
}
