package setup

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/led"
	"github.com/islet-edge/islet/internal/printable"
	"github.com/islet-edge/islet/internal/regular"
	"github.com/islet-edge/islet/internal/setuprecord"
)

// maxReport is the maximum length of a mistake in the record, an event or on the console, in bytes.
const maxReport = 1000

// shorten returns a text of several lines as one printable line.
func shorten(text string) string {
	return printable.Cut(strings.ReplaceAll(strings.TrimSpace(text), "\n", "; "), maxReport)
}

// Console is the console of the machine.
const Console = "/dev/console"

// consoleTime is the maximum time for a line. A serial line with flow control may take nothing.
const consoleTime = 2 * time.Second

// tell writes a line to the console. It writes nothing to a file that is not a character device. It ignores errors, because it has no other
// way to report them.
func tell(console, text string) {
	f, err := os.OpenFile(console, os.O_WRONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return
	}
	_ = f.SetWriteDeadline(time.Now().Add(consoleTime)) // a file that cannot be polled does not block
	_, _ = f.WriteString("islet: " + shorten(text) + "\n")
}

// A teller reports the failures of islet setup on the console, and each failure only once.
type teller struct {
	console string
	file    string // path of a file with the last reported failure; a reboot removes the file
}

// fail writes a failure to the console, unless it is the last reported failure. While an agent cannot start, the service repeats the
// command every two seconds, and each run has the same failure.
func (t teller) fail(text string) {
	if last, err := regular.Read(t.file, 2*maxReport); err == nil && string(last) == shorten(text) {
		return
	}
	tell(t.console, "setup: "+text)
	_ = os.WriteFile(t.file, []byte(shorten(text)), 0o600) // without the file, the next run reports the failure again
}

// forget removes the last reported failure, so that fail reports the same failure again when it returns.
func (t teller) forget() { _ = os.Remove(t.file) }

// boardLED returns the name of the LED that shows mistakes: the given name or, if it is empty, the LED of a Raspberry Pi. It returns ""
// if the LED does not exist.
func boardLED(dir, name string) string {
	names := []string{"ACT", "led0"}
	if name != "" {
		names = []string{name}
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(dir, filepath.Base(name), "trigger")); err == nil {
			return filepath.Base(name)
		}
	}
	return ""
}

// beat sets the trigger heartbeat. It returns the name of the LED, and its former trigger.
func beat(name string) (used, before string) {
	used = boardLED(led.Dir, name)
	l := led.New(led.Dir, used)
	if l.Set(led.Heartbeat) != nil {
		return "", ""
	}
	return used, l.Before()
}

// restoreLED gives the LED of a refusal its trigger back.
func restoreLED(r *setuprecord.Refusal) {
	if r != nil && r.LED != "" {
		_ = led.New(led.Dir, r.LED).SetBack(r.Before) // the LED may be gone
	}
}
