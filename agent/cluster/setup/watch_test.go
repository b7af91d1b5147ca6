package setup

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/internal/eventtest"
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

func (l *fakeLink) Changed() <-chan struct{} { return l.changed }

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
	tty    *os.File // of the console
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
	n, err := unix.Read(int(w.tty.Fd()), buffer)
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

// terminal returns a pseudoterminal: the side to read, and the path of the other one.
func terminal(t *testing.T) (*os.File, string) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip(err)
	}
	f := os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { f.Close() })
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must(t, err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0), unix.SetNonblock(fd, true))
	return f, fmt.Sprintf("/dev/pts/%d", number)
}

// TestWatch checks that a person at the board is told why it cannot join, and that the token is removed once it has joined.
func TestWatch(t *testing.T) {
	b, ca := newBoard(t), newCA(t)
	b.write(joining(ca) + "led: ACT\n")
	b.inUse()
	synctest.Test(t, func(t *testing.T) {
		w := watchBoard(t, b)
		time.Sleep(patience - time.Second)
		synctest.Wait()
		if said := w.said(); said != "" || w.trigger() != "none [mmc0] heartbeat" {
			t.Errorf("too early: %q, %q", said, w.trigger())
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if said := w.said(); said != "islet: kiosk-10000000abcdef01 has not joined https://192.0.2.1:6443: no route\r\n" || w.trigger() != "heartbeat" {
			t.Errorf("%q, %q", said, w.trigger())
		}
		for range 100 { // a link that goes up and down does not fill the console
			w.set(link.Down, "no route")
			w.set(link.Down, "Unauthorized\x1b[2J")
			synctest.Wait()
		}
		time.Sleep(2 * reportEvery)
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
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	b, ca := newBoard(t), newCA(t)
	must(t, unix.Mount("none", b.boot, "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount(b.boot, unix.MNT_DETACH)) })
	b.write(joining(ca))
	b.inUse()
	must(t, unix.Mount("none", b.boot, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	synctest.Test(t, func(t *testing.T) {
		w := watchBoard(t, b)
		w.set(link.Up, "")
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		must(t, unix.Mount("none", b.boot, "", unix.MS_REMOUNT, ""))
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

// clusterInfoOf returns the ConfigMap cluster-info as kubeadm makes it.
func clusterInfoOf(t *testing.T, cas ...string) string {
	t.Helper()
	text := "apiVersion: v1\nkind: Config\nclusters:\n"
	for _, ca := range cas {
		text += "- name: ''\n  cluster: {server: 'https://x', certificate-authority-data: " + base64.StdEncoding.EncodeToString([]byte(ca)) + "}\n"
	}
	data, err := json.Marshal(map[string]any{"kind": "ConfigMap", "data": map[string]string{"kubeconfig": text}})
	must(t, err)
	return string(data)
}

// serve runs a server with a certificate of the CA.
func serve(t *testing.T, ca clusterCA, answer func(w http.ResponseWriter, r *http.Request)) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(answer))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{ca.pair(t, "kube-apiserver")}}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// TestDiscovery checks that only a CA with the hash is used, and that the token is not sent.
func TestDiscovery(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	server := serve(t, ca, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.URL.Path != clusterInfo {
			t.Errorf("%s %v", r.URL, r.Header)
		}
		fmt.Fprint(w, clusterInfoOf(t, other.pem, "x", other.pem+ca.pem))
	})
	b := newBoard(t)
	b.write(head + "cluster:\n  server: " + server.URL + "\n  caHash: " + ca.hash + "\n  token: " + token + "\n")
	b.inUse()
	if b.made("bootstrap.kubeconfig") != "" || b.made("ca.crt") != "" || !strings.Contains(b.made("flags"), "--bootstrap-kubeconfig=") {
		t.Error(contents(t, b.Dir))
	}
	w := watchBoard(t, b)
	w.set(link.Up, "")
	<-w.ended
	if b.made("ca.crt") != ca.pem || !strings.Contains(b.made("bootstrap.kubeconfig"), token) {
		t.Error(contents(t, b.Dir))
	}
	if r, err := load(b.State); err != nil || r.Discovery != nil || !r.Removed {
		t.Errorf("%+v, %v", r, err)
	}
	d := discovery{Server: server.URL, Hash: newCA(t).hash}
	if _, err := d.fetch(t.Context(), time.Now); err == nil || !strings.Contains(err.Error(), "no CA with the hash") {
		t.Errorf("got %v", err)
	}
}

// TestForgedAuthority checks that a stranger cannot give the node a CA which has the public key of the right one, but other names or dates.
// Also a board without a clock obtains the CA.
func TestForgedAuthority(t *testing.T) {
	ca, thief := newCA(t), newCA(t)
	form := &x509.Certificate{SerialNumber: big.NewInt(9), Subject: pkix.Name{CommonName: "forged"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	raw, err := x509.CreateCertificate(rand.Reader, form, form, &ca.key.PublicKey, ca.key)
	must(t, err)
	forged := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
	for name, tt := range map[string]struct {
		server clusterCA
		first  string
		now    time.Time
		want   string
	}{
		"another server":             {thief, ca.pem, time.Now(), ""},
		"a forged CA":                {ca, forged, time.Now(), ""},
		"a forged CA with the right": {ca, forged + ca.pem, time.Now(), ca.pem},
		"no clock":                   {ca, ca.pem, time.Unix(0, 0), ca.pem},
	} {
		asked := 0
		server := serve(t, tt.server, func(w http.ResponseWriter, _ *http.Request) {
			if asked++; asked == 1 {
				fmt.Fprint(w, clusterInfoOf(t, tt.first))
			} else {
				fmt.Fprint(w, clusterInfoOf(t, ca.pem))
			}
		})
		got, err := (&discovery{Server: server.URL, Hash: ca.hash}).fetch(t.Context(), func() time.Time { return tt.now })
		if string(got) != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

// TestReplacedToken checks that a discovery which ends after the file was applied with another token changes nothing.
func TestReplacedToken(t *testing.T) {
	ca := newCA(t)
	text := func(server, token string) string {
		return head + "cluster:\n  server: " + server + "\n  caHash: " + ca.hash + "\n  token: " + token + "\n"
	}
	b := newBoard(t)
	asked := 0
	var server *httptest.Server
	server = serve(t, ca, func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 2 {
			b.write(text(server.URL, newToken))
			b.inUse()
		}
		fmt.Fprint(w, clusterInfoOf(t, ca.pem))
	})
	b.write(text(server.URL, token))
	b.inUse()
	w := watchBoard(t, b)
	w.set(link.Up, "")
	<-w.ended
	if r, err := load(b.State); err != nil || r.Discovery == nil || r.Discovery.Token != newToken || b.made("bootstrap.kubeconfig") != "" {
		t.Errorf("%+v, %v, %s", r, err, b.made("bootstrap.kubeconfig"))
	}
	w = watchBoard(t, b)
	w.set(link.Up, "")
	<-w.ended
	if !strings.Contains(b.made("bootstrap.kubeconfig"), newToken) {
		t.Error(contents(t, b.Dir))
	}
}

// TestWatchAgain checks that an agent which starts while the LED of an earlier one beats gives it back its trigger of before, also if
// the file does not name the LED.
func TestWatchAgain(t *testing.T) {
	b, ca := newBoard(t), newCA(t)
	b.write(joining(ca))
	b.inUse()
	synctest.Test(t, func(t *testing.T) {
		w := watchBoard(t, b)
		time.Sleep(patience + time.Second)
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
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		must(t, os.Rename(b.boot+".away", b.boot))
		<-w.ended
		if text, err := os.ReadFile(b.file()); err != nil || strings.Contains(string(text), token) || len(w.events) > 0 {
			t.Errorf("the token is still there: %v, %q", err, w.events)
		}
	})
}

// TestHostileServers checks answers that are no answers, and bombs.
func TestHostileServers(t *testing.T) {
	ca := newCA(t)
	info := func(text string) string {
		data, err := json.Marshal(map[string]any{"data": map[string]string{"kubeconfig": text}})
		must(t, err)
		return string(data)
	}
	for name, answer := range map[string]string{
		"nothing": "", "a page": "<html>", "another object": "{}", "null": "null", "endless": strings.Repeat(" ", maxAnswer+1),
		"wide":            `{"data":{"kubeconfig":"","x":[` + strings.Repeat("{},", 200_000) + `{}]}}`,
		"deep":            strings.Repeat(`{"data":`, 100_000),
		"wide kubeconfig": info("clusters: [" + strings.Repeat("{},", 200_000) + "]"),
		"aliases":         info("a: &a [x,x]\nb: [*a,*a]\n"),
		"PEM headers":     info("clusters: [{cluster: {certificate-authority-data: " + base64.StdEncoding.EncodeToString([]byte("-----BEGIN A-----\n"+strings.Repeat("a:b\n", 20_000))) + "}}]"),
	} {
		server := serve(t, ca, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) })
		d := discovery{Server: server.URL, Hash: ca.hash}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := d.fetch(t.Context(), time.Now)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > 32<<20 {
			t.Errorf("%s: %v, %d MiB", name, err, took>>20)
		}
	}
	away := serve(t, ca, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://192.0.2.1/", http.StatusFound)
	})
	if _, err := (&discovery{Server: away.URL, Hash: ca.hash}).fetch(t.Context(), time.Now); err == nil || !strings.Contains(err.Error(), "302") {
		t.Errorf("got %v", err)
	}
}

// TestTell checks that a console that is none is not written, and that one which takes nothing does not block.
func TestTell(t *testing.T) {
	file := filepath.Join(t.TempDir(), "console")
	must(t, os.WriteFile(file, []byte("before"), 0o600))
	tell(file, "x")
	tell(file+".missing", "x")
	if text, err := os.ReadFile(file); err != nil || string(text) != "before" {
		t.Errorf("%q, %v", text, err)
	}
	fifo := file + ".fifo"
	must(t, unix.Mkfifo(fifo, 0o600))
	tell(fifo, "x")
	_, tty := terminal(t)
	for range 5 { // more than the terminal stores
		tell(tty, strings.Repeat("x", maxReport))
	}
}
