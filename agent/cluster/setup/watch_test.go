package setup

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/internal/ptytest"
)

// A fakeLink is a link whose state the test sets.
type fakeLink struct {
	mu      sync.Mutex
	state   link.State
	server  string
	changed chan struct{}
}

func (l *fakeLink) Now() time.Time { return time.Now() }

func (l *fakeLink) Server() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.server
}

func (l *fakeLink) setServer(server string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.server = server
}

func newLink() *fakeLink {
	return &fakeLink{state: link.State{Phase: link.Down, Message: "no route"}, changed: make(chan struct{}, 1)}
}

func (l *fakeLink) State() link.State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

func (l *fakeLink) Changed() kube.LinkSignal { return kube.LinkSignal{C: l.changed} }

func (l *fakeLink) set(phase link.Phase, message string) {
	l.mu.Lock()
	l.state = link.State{Phase: phase, Message: message}
	l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// A watched is a running Watch with its inputs and outputs.
type watched struct {
	*fakeLink
	t      *testing.T
	end    func() // ends Watch
	ended  chan struct{}
	events []string // read them after the end
	tty    int      // file descriptor of the other side of the console
	led    string
}

// watchBoard runs Watch on a board, with a terminal as its console.
func watchBoard(t *testing.T, b *board) *watched {
	t.Helper()
	w := &watched{fakeLink: newLink(), t: t, ended: make(chan struct{}), led: filepath.Join(t.TempDir(), "ACT/trigger")}
	var path string
	w.tty, path = terminal(t)
	must(t, os.MkdirAll(filepath.Dir(w.led), 0o755), os.WriteFile(w.led, []byte("none [mmc0] heartbeat"), 0o600))
	r, err := load(b.State)
	must(t, err)
	w.server = r.Server
	ctx, cancel := context.WithCancel(t.Context())
	c := Config{State: b.State, Link: w, Console: path, Log: slog.New(slog.DiscardHandler), ledDir: filepath.Dir(filepath.Dir(w.led)),
		Warn: func(reason, message string) {
			eventtest.RecordEvent("Warning", reason, message)
			w.events = append(w.events, reason+" "+message)
		}}
	go func() {
		defer close(w.ended)
		if err := Watch(ctx, c); err != nil {
			t.Error(err)
		}
	}()
	w.end = func() { cancel(); <-w.ended }
	t.Cleanup(w.end)
	return w
}

// said returns what was written to the console since the last call.
func (w *watched) said() string {
	w.t.Helper()
	buffer := make([]byte, 4096)
	n, err := unix.Read(w.tty, buffer)
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		w.t.Fatal(err)
	}
	return string(buffer[:max(n, 0)])
}

func (w *watched) trigger() string {
	w.t.Helper()
	text, err := os.ReadFile(w.led)
	must(w.t, err)
	return string(text)
}

// terminal returns a pseudoterminal: the file descriptor of the side to read, which does not block, and the path of the other side.
func terminal(t *testing.T) (int, string) {
	t.Helper()
	ours, theirs := ptytest.Open(t)
	fd := int(ours.Fd())
	must(t, unix.SetNonblock(fd, true))
	return fd, theirs.Name()
}

// TestWatch checks that a person at the board is told why it cannot join, and that the token is removed once it has joined.
func TestWatch(t *testing.T) {
	b, ca := newBoard(t), newCA(t)
	b.write(joining(ca) + "led: ACT\n")
	b.inUse()
	synctest.Test(t, func(t *testing.T) {
		w := watchBoard(t, b)
		time.Sleep(patience - time.Second) // in the bubble's time
		synctest.Wait()
		if said := w.said(); said != "" || w.trigger() != "none [mmc0] heartbeat" {
			t.Errorf("too early: %q, %q", said, w.trigger())
		}
		time.Sleep(2 * time.Second) // in the bubble's time
		synctest.Wait()
		if said := w.said(); said != "islet: kiosk-10000000abcdef01 has not joined https://192.0.2.1:6443: no route\r\n" || w.trigger() != "heartbeat" {
			t.Errorf("%q, %q", said, w.trigger())
		}
		for range 100 { // a link that goes up and down does not fill the console
			w.set(link.Down, "no route")
			w.set(link.Down, "Unauthorized\x1b[2J")
			synctest.Wait()
		}
		time.Sleep(2 * reportEvery) // in the bubble's time
		synctest.Wait()
		if said := w.said(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "Unauthorized\ufffd[2J\r") {
			t.Errorf("%q", said)
		}
		if text, err := os.ReadFile(b.file()); err != nil || !strings.Contains(string(text), token) {
			t.Errorf("the token is gone: %v", err)
		}
		w.set(link.Up, "")
		<-w.ended
		if said := w.said(); !strings.Contains(said, "kiosk-10000000abcdef01 has joined https://192.0.2.1:6443") || w.trigger() != "mmc0" {
			t.Errorf("%q, %q", said, w.trigger())
		}
		if text, err := os.ReadFile(b.file()); err != nil || strings.Contains(string(text), token) {
			t.Errorf("the token is still there: %v", err)
		}
	})
	b.join(ca, "https://192.0.2.1:6443", "kiosk-10000000abcdef01")
	if out := b.inUse(); out.Applied {
		t.Error("applied again")
	}
	synctest.Test(t, func(t *testing.T) { // the next start has nothing to do
		w := watchBoard(t, b)
		<-w.ended
		if said := w.said(); said != "" {
			t.Error(said)
		}
	})
}

// TestWatchReadOnly checks that a token is removed when the boot partition takes writes again.
func TestWatchReadOnly(t *testing.T) {
	b, ca := newBoard(t), newCA(t)
	b.mountBoot()
	b.write(joining(ca))
	b.inUse()
	must(t, b.setReadOnly(true))
	synctest.Test(t, func(t *testing.T) {
		w := watchBoard(t, b)
		w.set(link.Up, "")
		time.Sleep(24 * time.Hour) // in the bubble's time
		synctest.Wait()
		must(t, b.setReadOnly(false))
		<-w.ended
		if len(w.events) != 1 || !strings.Contains(w.events[0], "read-only file system: mount its file system writable") {
			t.Errorf("%q", w.events)
		}
		if text, err := os.ReadFile(b.file()); err != nil || strings.Contains(string(text), token) {
			t.Errorf("the token is still there: %v", err)
		}
	})
}

// TestWatchRefused checks that the node reports a file that is not in use, and that an edited file is left alone.
func TestWatchRefused(t *testing.T) {
	b, ca := newBoard(t), newCA(t)
	b.write(joining(ca))
	b.inUse()
	b.write(joining(ca) + "nmae: x\n")
	b.refused()
	synctest.Test(t, func(t *testing.T) {
		w := watchBoard(t, b)
		w.set(link.Up, "")
		<-w.ended
		if len(w.events) != 1 || !strings.HasPrefix(w.events[0], "SetupRefused "+b.file()+" is not in use: "+b.file()) {
			t.Errorf("%q", w.events)
		}
		if text, err := os.ReadFile(b.file()); err != nil || !strings.Contains(string(text), token) {
			t.Errorf("the edited file was changed: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a node without such a file
		w := watchBoard(t, newBoard(t))
		<-w.ended
		if len(w.events) != 0 {
			t.Errorf("%q", w.events)
		}
	})
}

// TestWatchAgain checks that an agent restores the original trigger of an LED to which a previous agent has given the trigger heartbeat,
// also if the file does not name the LED.
func TestWatchAgain(t *testing.T) {
	b, ca := newBoard(t), newCA(t)
	b.write(joining(ca))
	b.inUse()
	synctest.Test(t, func(t *testing.T) {
		w := watchBoard(t, b)
		time.Sleep(patience + time.Second) // in the bubble's time
		synctest.Wait()
		if w.trigger() != "heartbeat" {
			t.Error(w.trigger())
		}
		w.end()
		w = watchBoard(t, b)
		synctest.Wait()
		if w.trigger() != "mmc0" {
			t.Error(w.trigger())
		}
	})
}

// TestNotMounted checks that the secrets are removed when a partition that was not mounted is mounted again.
func TestNotMounted(t *testing.T) {
	b, ca := newBoard(t), newCA(t)
	b.write(joining(ca))
	b.inUse()
	synctest.Test(t, func(t *testing.T) {
		must(t, os.Rename(b.boot, b.boot+".away"))
		w := watchBoard(t, b)
		w.set(link.Up, "")
		time.Sleep(24 * time.Hour) // in the bubble's time
		synctest.Wait()
		must(t, os.Rename(b.boot+".away", b.boot))
		<-w.ended
		if text, err := os.ReadFile(b.file()); err != nil || strings.Contains(string(text), token) || len(w.events) > 0 {
			t.Errorf("the token is still there: %v, %q", err, w.events)
		}
	})
}
