package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/islet-edge/islet/internal/regular"
)

// Logind receives signals from systemd's logind, or from elogind, over D-Bus. https://systemd.io/INHIBITOR_LOCKS/
type Logind struct {
	Bus     string // address of the system bus
	DropIns string // directory of logind's drop-ins; if empty, the delay is not raised
	Log     *slog.Logger

	mu   sync.Mutex
	lock *os.File // inhibitor lock; nil if it is not held
}

// SystemBus returns the address of the system bus. The environment can override it.
func SystemBus() string {
	if a := os.Getenv("DBUS_SYSTEM_BUS_ADDRESS"); a != "" {
		return a
	}
	return "unix:path=/run/dbus/system_bus_socket"
}

// DropIns is the directory for drop-ins of logind's configuration.
const DropIns = "/etc/systemd/logind.conf.d"

// SystemLogind returns the Logind of this machine.
func SystemLogind(log *slog.Logger) *Logind {
	return &Logind{Bus: SystemBus(), DropIns: DropIns, Log: log}
}

// dropIn is the file that raises logind's delay. The file begins with the text madeBy. Packages and install.sh
// recognize the file by this text.
const (
	dropIn = "99-islet.conf"
	madeBy = "# Made by islet:"
)

// RemoveDropIn removes the drop-in if it was created by islet. A running logind keeps the delay until it restarts. Another
// agent on this machine that needs the delay creates the file again.
func RemoveDropIn(dropIns string) error {
	file := filepath.Join(dropIns, dropIn)
	text, err := regular.Read(file, 4096)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("remove the drop-in that raises logind's delay: %w", err)
	case !strings.HasPrefix(string(text), madeBy):
		return nil
	}
	return os.Remove(file)
}

const (
	login   = "org.freedesktop.login1"
	manager = login + ".Manager"

	minReconnectDelay, maxReconnectDelay = time.Second, time.Minute // interval between two attempts to connect
	callTimeout                          = 5 * time.Second          // timeout of one call
)

// Run implements Host. It reconnects when logind is missing or restarts.
func (l *Logind) Run(ctx context.Context, need time.Duration, notify func(off bool, release func())) {
	defer l.releaseInhibitor()
	for pause := minReconnectDelay; ; pause = min(2*pause, maxReconnectDelay) {
		begin := time.Now()
		err := l.handleSignals(ctx, need, notify)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begin) > maxReconnectDelay {
			pause = minReconnectDelay
		}
		if pause == minReconnectDelay {
			l.Log.Warn("cannot follow logind, so only islet shutdown ends pods in order: retrying",
				"error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// handleSignals handles logind's signals until the connection ends.
func (l *Logind) handleSignals(ctx context.Context, need time.Duration, notify func(bool, func())) error {
	bus, err := dbus.Connect(l.Bus, dbus.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("connect to the system bus: %w", err)
	}
	defer bus.Close()
	signals := make(chan *dbus.Signal, 16)
	bus.Signal(signals)
	for _, m := range [][]dbus.MatchOption{
		{dbus.WithMatchSender(login), dbus.WithMatchInterface(manager), dbus.WithMatchMember("PrepareForShutdown")},
		{dbus.WithMatchSender("org.freedesktop.DBus"), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, login)},
	} {
		if err := bus.AddMatchSignal(m...); err != nil {
			return fmt.Errorf("follow logind: %w", err)
		}
	}
	o := bus.Object(login, "/org/freedesktop/login1")
	var delay uint64
	if err := getProperty(ctx, o, "InhibitDelayMaxUSec", &delay); err != nil {
		return err
	}
	if time.Duration(delay)*time.Microsecond < need && l.DropIns != "" {
		if err := l.raiseDelay(ctx, bus, o, need); err != nil {
			l.Log.Error("pods may be killed when this machine shuts down: logind's delay is shorter than their grace periods",
				"error", err)
		}
	}
	var off bool
	if err := getProperty(ctx, o, "PreparingForShutdown", &off); err != nil {
		return err
	}
	if !off {
		if err := l.takeInhibitor(ctx, o); err != nil {
			return err
		}
	}
	notify(off, l.releaseInhibitor)
	for {
		select {
		case s, ok := <-signals:
			switch {
			case !ok:
				return errors.New("the system bus closed the connection")
			case s.Name == "org.freedesktop.DBus.NameOwnerChanged":
				return errors.New("logind ended or was restarted")
			case s.Name != manager+".PrepareForShutdown" || len(s.Body) == 0:
				continue
			}
			if off, _ = s.Body[0].(bool); !off {
				if err := l.takeInhibitor(ctx, o); err != nil {
					return err
				}
			}
			notify(off, l.releaseInhibitor)
		case <-bus.Context().Done():
			return errors.New("the connection to the system bus ended")
		}
	}
}

// Delay returns logind's maximum delay for inhibitor locks.
func Delay(ctx context.Context, address string) (time.Duration, error) {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	bus, err := dbus.Connect(address, dbus.WithContext(ctx))
	if err != nil {
		return 0, fmt.Errorf("connect to the system bus: %w", err)
	}
	defer bus.Close()
	var delay uint64
	err = getProperty(ctx, bus.Object(login, "/org/freedesktop/login1"), "InhibitDelayMaxUSec", &delay)
	return time.Duration(delay) * time.Microsecond, err
}

func getProperty(ctx context.Context, o dbus.BusObject, name string, value any) error {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	var v dbus.Variant
	err := o.CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, manager, name).Store(&v)
	if err == nil {
		err = v.Store(value)
	}
	if err != nil {
		return fmt.Errorf("read %s of logind: %w", name, err)
	}
	return nil
}

// takeInhibitor acquires an inhibitor lock unless one is held.
func (l *Logind) takeInhibitor(ctx context.Context, o dbus.BusObject) error {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lock != nil {
		return nil
	}
	var fd dbus.UnixFD
	if err := o.CallWithContext(ctx, manager+".Inhibit", 0, "shutdown", "islet", "Pods end in order", "delay").Store(&fd); err != nil {
		return fmt.Errorf("take an inhibitor lock of logind: %w", err)
	}
	l.lock = os.NewFile(uintptr(fd), "inhibitor")
	return nil
}

// releaseInhibitor releases the inhibitor lock.
func (l *Logind) releaseInhibitor() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lock != nil {
		l.lock.Close()
		l.lock = nil
	}
}

// raiseDelay creates a drop-in that sets logind's delay to the total grace period of the pods, like a kubelet.
func (l *Logind) raiseDelay(ctx context.Context, bus *dbus.Conn, o dbus.BusObject, need time.Duration) error {
	if err := os.MkdirAll(l.DropIns, 0o755); err != nil {
		return fmt.Errorf("create the directory for logind's InhibitDelayMaxSec: %w", err)
	}
	seconds := int64((need + time.Second - 1) / time.Second)
	text := fmt.Sprintf(madeBy+" so long may pods take to end when the machine goes off.\n[Login]\nInhibitDelayMaxSec=%d\n", seconds)
	file := filepath.Join(l.DropIns, dropIn)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return fmt.Errorf("set logind's InhibitDelayMaxSec: %w", err)
	}
	const hangUp = int32(1) // SIGHUP reloads its configuration
	call, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	systemd := bus.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1")
	if err := systemd.CallWithContext(call, "org.freedesktop.systemd1.Manager.KillUnit", 0,
		"systemd-logind.service", "all", hangUp).Err; err != nil {
		return fmt.Errorf("reload logind with %s: %w", file, err)
	}
	var delay uint64
	for pause := 20 * time.Millisecond; pause < 2*time.Second; pause *= 2 {
		if err := getProperty(ctx, o, "InhibitDelayMaxUSec", &delay); err != nil {
			return err
		}
		if time.Duration(delay)*time.Microsecond >= need {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fmt.Errorf("%s sets %ds, but logind waits only %s: another file in that directory takes precedence",
		file, seconds, time.Duration(delay)*time.Microsecond)
}
