package medium

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/islet-edge/islet/internal/regular"
)

// Triggers of the LED. https://docs.kernel.org/leds/leds-class.html
const (
	blinking  = "timer"      // the node needs the stick
	on        = "default-on" // done
	heartbeat = "heartbeat"  // the bundle is not in use, or there is none
)

// An led is an LED of the board. Its methods do nothing if the file is empty.
type led struct {
	file string // such as /sys/class/leds/NAME/trigger

	mu     sync.Mutex
	before string // the trigger that restore sets; empty if set was not called
}

func newLED(dir, name string) *led {
	if name == "" {
		return &led{}
	}
	return &led{file: filepath.Join(dir, name, "trigger")}
}

// set sets the trigger of the LED.
func (l *led) set(trigger string) error {
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

// restore sets the trigger that the LED had before.
func (l *led) restore() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.before == "" {
		return nil
	}
	before := l.before
	l.before = ""
	return l.write(before)
}

func (l *led) write(trigger string) error {
	f, err := os.OpenFile(l.file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(trigger)
	return errors.Join(err, f.Close())
}
