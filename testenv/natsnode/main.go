// Command natsnode is one server of a NATS cluster, for tests and the demo: it
// stores durably, and ends on SIGTERM.
package main

import (
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/nats-io/nats-server/v2/server"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "natsnode:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	f := flag.NewFlagSet("natsnode", flag.ContinueOnError)
	name := f.String("name", "", "of the server, unique in its cluster")
	store := f.String("store", "", "folder of the streams")
	listen := f.String("listen", "127.0.0.1:0", "address for clients")
	health := f.String("health", "127.0.0.1:0", "address of /healthz")
	cluster := f.String("cluster", "127.0.0.1:0", "address for the other servers")
	routes := f.String("routes", "", "addresses of all servers, with commas")
	if err := f.Parse(args); err != nil {
		return err
	}
	opts := &server.Options{
		ServerName: *name, StoreDir: *store, NoSigs: true,
		JetStream: true, SyncAlways: true, JetStreamMaxStore: 2 << 30, JetStreamMaxMemory: 64 << 20,
		Cluster: server.ClusterOpts{Name: "fieldpost"},
	}
	for addr, to := range map[string]struct {
		host *string
		port *int
	}{
		*listen:  {&opts.Host, &opts.Port},
		*health:  {&opts.HTTPHost, &opts.HTTPPort},
		*cluster: {&opts.Cluster.Host, &opts.Cluster.Port},
	} {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return err
		}
		if *to.host, *to.port = host, 0; port != "0" {
			if *to.port, err = strconv.Atoi(port); err != nil {
				return err
			}
		}
	}
	for _, addr := range strings.Split(*routes, ",") {
		opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats", Host: addr})
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	go s.Start()
	<-stop
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}
