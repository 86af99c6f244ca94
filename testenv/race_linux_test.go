package testenv

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// natsServer runs a NATS server of its own, as an operator's cluster would be.
func natsServer(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), SyncAlways: true, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	return s.Addr().String()
}

// newRace is a world of several hub instances on one NATS server. w.Hub is the
// first of them.
func newRace(t *testing.T, instances int) (w *World, hubs []*Process) {
	t.Helper()
	short(t)
	w = &World{TB: t, Dir: shortDir(t), Binaries: Build(t), History: NewHistory(), NATS: natsServer(t)}
	for i := range instances {
		name, http := fmt.Sprint("hub-", i), freeAddr(t)
		cfg := w.write(name+".yaml", fmt.Sprintf("data_dir: %q\nnats: {urls: [\"nats://%s\"], max_store: 4GiB}\nhttp: {listen: %q}\n", filepath.Join(w.Dir, name), w.NATS, http))
		hubs = append(hubs, NewProcess(t, name, filepath.Join(w.Dir, name+".log"), w.Binaries.Hub, "run", "-c", cfg))
		w.Hub, w.HTTP = hubs[i], http
		w.StartHub()
	}
	return w, hubs
}

// TestHubInstancesRace kills the hub instances in turn while devices send: a
// device's blocks reach both.
func TestHubInstancesRace(t *testing.T) {
	w, hubs := newRace(t, 2)
	s, rnd := seed(t)
	for i := range 3 {
		w.StartLoad(w.AddAgent(fmt.Sprintf("press-%d", i), ""), 4*time.Millisecond, s+uint64(i))
	}
	for i := range max(*kills/5, 2) {
		time.Sleep(time.Duration(rnd.IntN(800)) * time.Millisecond)
		hub := hubs[i%2]
		hub.Kill()
		time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
		hub.Start()
		w.Agents[rnd.IntN(3)].Link.Cut(false)
	}
	time.Sleep(time.Second)
	w.stopLoads()
	report(t, w)
}

// TestLateFrames stops one instance with frames in its hands, lets the agents go
// on at the other, and wakes the first again.
func TestLateFrames(t *testing.T) {
	w, hubs := newRace(t, 2)
	s, _ := seed(t)
	for i := range 3 {
		w.StartLoad(w.AddAgent(fmt.Sprintf("press-%d", i), ""), 2*time.Millisecond, s+uint64(i))
	}
	for i := range 4 {
		slow := hubs[i%2]
		time.Sleep(500 * time.Millisecond)
		slow.Signal(syscall.SIGSTOP)
		time.Sleep(300 * time.Millisecond) // frames arrive at the stopped instance
		for _, a := range w.Agents {
			a.Link.Cut(false) // new sessions, at the other instance if they are lucky
		}
		Eventually(t, 60*time.Second, "all agents have a session again", func() error {
			for _, a := range w.Agents {
				if st, err := a.Status(); err != nil || !st.Link.Up {
					return fmt.Errorf("%s: up %v, %q, %v", a.Device, st.Link.Up, st.Link.LastError, err)
				}
			}
			return nil
		})
		time.Sleep(300 * time.Millisecond)
		slow.Signal(syscall.SIGCONT)
	}
	w.stopLoads()
	report(t, w)
}
