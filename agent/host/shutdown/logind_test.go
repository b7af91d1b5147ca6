package shutdown

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// A bus is a D-Bus daemon that the test starts.
type bus struct {
	dir, address string
	daemon       *exec.Cmd
}

const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>system</type><listen>unix:path=%s</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_type="*"/><allow receive_type="*"/></policy></busconfig>`

func newBus(t *testing.T) *bus {
	path, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("needs dbus-daemon: packaging/deps.sh installs it")
	}
	b := &bus{dir: t.TempDir()}
	socket := filepath.Join(b.dir, "bus")
	b.address = "unix:path=" + socket
	if err := os.WriteFile(filepath.Join(b.dir, "conf"), fmt.Appendf(nil, busConfig, socket), 0o600); err != nil {
		t.Fatal(err)
	}
	b.start(t, path)
	return b
}

func (b *bus) start(t *testing.T, path string) {
	t.Helper()
	b.daemon = exec.Command(path, "--nofork", "--print-address", "--config-file="+filepath.Join(b.dir, "conf"))
	out, err := b.daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.daemon.Process.Kill(); b.daemon.Wait() })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // the daemon is listening
		t.Fatal(err)
	}
}

// A login1 is a fake logind. It hands out inhibitor locks, and reads its drop-ins when systemd's reload method is called.
type login1 struct {
	conn  *dbus.Conn
	dir   string // directory of the drop-ins
	locks chan lock

	delay atomic.Uint64
	off   bool
}

// A lock has both ends of a pipe. The client that took the lock has a copy of the write end.
type lock struct{ read, write *os.File }

func (b *bus) logind(t *testing.T, off bool) *login1 {
	t.Helper()
	conn, err := dbus.Connect(b.address)
	if err != nil {
		t.Fatal(err)
	}
	l := &login1{conn: conn, dir: filepath.Join(b.dir, "logind.conf.d"), locks: make(chan lock, 8), off: off}
	l.delay.Store(5_000_000)
	export := func(methods any, path dbus.ObjectPath, iface string) {
		if err := conn.Export(methods, path, iface); err != nil {
			t.Fatal(err)
		}
	}
	export(l, "/org/freedesktop/login1", manager)
	export(properties{l}, "/org/freedesktop/login1", "org.freedesktop.DBus.Properties")
	export(units{l}, "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
	for _, name := range []string{login, "org.freedesktop.systemd1"} {
		if r, err := conn.RequestName(name, dbus.NameFlagDoNotQueue); err != nil || r != dbus.RequestNameReplyPrimaryOwner {
			t.Fatal(r, err)
		}
	}
	return l
}

// Inhibit returns the write end of a pipe.
func (l *login1) Inhibit(what, _, _, mode string) (dbus.UnixFD, *dbus.Error) {
	if what != "shutdown" || mode != "delay" {
		return 0, dbus.MakeFailedError(fmt.Errorf("%s, %s", what, mode))
	}
	r, w, err := os.Pipe()
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	l.locks <- lock{r, w}
	return dbus.UnixFD(w.Fd()), nil
}

type properties struct{ l *login1 }

func (p properties) Get(_, name string) (dbus.Variant, *dbus.Error) {
	if name == "PreparingForShutdown" {
		return dbus.MakeVariant(p.l.off), nil
	}
	return dbus.MakeVariant(p.l.delay.Load()), nil
}

type units struct{ l *login1 }

func (u units) KillUnit(unit, _ string, signal int32) *dbus.Error {
	text, err := os.ReadFile(filepath.Join(u.l.dir, dropIn))
	if unit != "systemd-logind.service" || signal != 1 || err != nil {
		return dbus.MakeFailedError(fmt.Errorf("%s %d %w", unit, signal, err))
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "InhibitDelayMaxSec="); ok {
			var seconds uint64
			fmt.Sscan(n, &seconds)
			u.l.delay.Store(seconds * 1_000_000)
		}
	}
	return nil
}

func (l *login1) signal(t *testing.T, off bool) {
	t.Helper()
	if err := l.conn.Emit("/org/freedesktop/login1", manager+".PrepareForShutdown", off); err != nil {
		t.Fatal(err)
	}
}

// This helper waits until the client has closed the lock.
func (l lock) released() {
	l.write.Close() // the client has received its copy of the write end
	l.read.Read(make([]byte, 1))
	l.read.Close()
}

type change struct {
	off     bool
	release func()
}

func follow(t *testing.T, b *bus, dropIns string, need time.Duration) <-chan change {
	told := make(chan change, 8)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l := &Logind{Bus: b.address, DropIns: dropIns, Log: slog.New(slog.DiscardHandler)}
		l.Run(ctx, need, func(off bool, release func()) { told <- change{off, release} })
	}()
	t.Cleanup(func() { stop(); <-ended })
	return told
}

// TestLogind checks that an inhibitor lock delays a shutdown until all pods have ended. The agent takes the lock at its start, and a new
// one after a cancelled shutdown.
func TestLogind(t *testing.T) {
	b := newBus(t)
	l := b.logind(t, false)
	if d, err := Delay(t.Context(), b.address); d != 5*time.Second || err != nil {
		t.Errorf("%v, %v", d, err)
	}
	told := follow(t, b, l.dir, 90500*time.Millisecond)
	if c := <-told; c.off {
		t.Fatal("a shutdown was reported before logind's signal")
	}
	if text, _ := os.ReadFile(filepath.Join(l.dir, dropIn)); !strings.Contains(string(text), "[Login]\nInhibitDelayMaxSec=91\n") {
		t.Errorf("the drop-in is %q", text)
	}
	t.Cleanup(func() {
		if err := RemoveDropIn(l.dir); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(l.dir, dropIn)); err == nil {
			t.Error("Forget did not delete islet's drop-in")
		}
	})
	lock := <-l.locks
	l.signal(t, true)
	c := <-told
	if !c.off {
		t.Fatal("the shutdown was not reported")
	}
	c.release()
	lock.released()
	l.signal(t, false)
	if c := <-told; c.off {
		t.Fatal("the cancellation was not reported")
	}
	lock = <-l.locks
	l.signal(t, true)
	c = <-told
	c.release()
	lock.released()
}

// TestLogindRestarts checks that the agent reads the state of a restarted logind and takes a new lock. No drop-in is written if logind's
// delay is long enough.
func TestLogindRestarts(t *testing.T) {
	b := newBus(t)
	l := b.logind(t, false)
	told := follow(t, b, l.dir, 5*time.Second)
	<-told
	<-l.locks
	l.conn.Close()
	l = b.logind(t, false)
	if c := <-told; c.off {
		t.Fatal("a shutdown was reported before logind's signal")
	}
	l.conn.Close()
	b.logind(t, true)
	for c := range told {
		if c.off {
			break
		}
	}
	if _, err := os.Stat(l.dir); err == nil {
		t.Error("a drop-in was written")
	}
}

// TestForget checks that Forget deletes islet's drop-in, but no file that islet did not create. It succeeds if there is no drop-in.
func TestForget(t *testing.T) {
	for name, c := range map[string]struct {
		make func(file string) error
		left bool
		err  string
	}{
		"none":      {make: func(string) error { return nil }},
		"islet's":   {make: func(f string) error { return os.WriteFile(f, []byte(madeBy+" x\n[Login]\n"), 0o644) }},
		"another's": {make: func(f string) error { return os.WriteFile(f, []byte("[Login]\nInhibitDelayMaxSec=60\n"), 0o644) }, left: true},
		"no file":   {make: func(f string) error { return os.Mkdir(f, 0o755) }, left: true, err: dropIn},
		"large":     {make: func(f string) error { return os.WriteFile(f, []byte(madeBy+strings.Repeat("x", 8192)), 0o644) }, left: true, err: dropIn},
	} {
		dir := t.TempDir()
		if err := c.make(filepath.Join(dir, dropIn)); err != nil {
			t.Fatal(err)
		}
		err := RemoveDropIn(dir)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(filepath.Join(dir, dropIn)); (err == nil) != c.left {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := RemoveDropIn(filepath.Join(t.TempDir(), "none")); err != nil {
		t.Error(err)
	}
}

// TestNoBus checks that the agent stops its attempts to connect on a machine without D-Bus. This is not an error.
func TestNoBus(t *testing.T) {
	told := follow(t, &bus{address: "unix:path=" + filepath.Join(t.TempDir(), "none")}, "", time.Second)
	select {
	case c := <-told:
		t.Errorf("reported %v", c.off)
	default:
	}
}
