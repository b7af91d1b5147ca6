package led

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/islet-edge/islet/internal/regular"
)

// Dir is the directory of the kernel's LEDs.
const Dir = "/sys/class/leds"

// Triggers of the LED.
const (
	Blinking  = "timer"
	On        = "default-on"
	Heartbeat = "heartbeat"
)

// An LED is an LED of the board. Its methods do nothing if it has no name.
type LED struct {
	file string // such as /sys/class/leds/NAME/trigger

	mu     sync.Mutex
	before string // the trigger that Restore sets; empty if Set was not called
}

// New returns the LED with a name in the directory dir. The name may be empty.
func New(dir, name string) *LED {
	if name == "" {
		return &LED{}
	}
	return &LED{file: filepath.Join(dir, name, "trigger")}
}

// Check returns an error if the LED does not exist. An LED without a name is not an error.
func (l *LED) Check() error {
	if l.file == "" {
		return nil
	}
	_, err := regular.Read(l.file, maxTriggers)
	return err
}

// Set sets the trigger of the LED.
func (l *LED) Set(trigger string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == "" {
		return nil
	}
	if l.before == "" {
		text, err := regular.Read(l.file, maxTriggers)
		if err != nil {
			return err
		}
		l.before = "none"
		if _, rest, ok := strings.Cut(string(text), "["); ok { // the current trigger has brackets
			l.before, _, _ = strings.Cut(rest, "]")
		}
	}
	return l.write(trigger)
}

// maxTriggers is the maximum size of the list of triggers, in bytes. There is a trigger for each CPU and each network interface.
const maxTriggers = 64 << 10

// Restore sets the trigger that the LED had before the first Set.
func (l *LED) Restore() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.before == "" {
		return nil
	}
	before := l.before
	l.before = ""
	return l.write(before)
}

func (l *LED) write(trigger string) error {
	f, err := os.OpenFile(l.file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(trigger)
	return errors.Join(err, f.Close())
}

// Before returns the trigger that the LED had before the first Set, or "" if Set was not called.
func (l *LED) Before() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.before
}

// SetBack sets a trigger that Before has returned in an earlier process. It does nothing if the trigger is empty.
func (l *LED) SetBack(before string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == "" || before == "" {
		return nil
	}
	return l.write(before)
}
