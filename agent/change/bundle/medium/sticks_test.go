package medium

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/internal/bundle/bundletest"
	"github.com/islet-edge/islet/internal/led"
	"github.com/islet-edge/islet/internal/uevent"
)

// A light is an LED of a board.
type light struct {
	*testing.T
	*led.LED
	file string
}

func newLight(t *testing.T) *light {
	dir := t.TempDir()
	l := &light{t, led.New(dir, "act"), filepath.Join(dir, "act/trigger")}
	must(t, os.Mkdir(filepath.Dir(l.file), 0o755), os.WriteFile(l.file, []byte("none [mmc0] timer heartbeat default-on\n"), 0o600))
	return l
}

func (l *light) want(what, trigger string) {
	l.Helper()
	if text, err := os.ReadFile(l.file); err != nil || string(text) != trigger {
		l.Errorf("%s: the trigger of the LED is %q, not %q: %v", what, text, trigger, err)
	}
}

// pullOut removes a stick. It also sends the kernel's event for a removed USB device, because a loop device does not cause this event.
func (m *Medium) pullOut(s *stick) {
	s.t.Helper()
	name := filepath.Base(s.device)
	s.pull()
	m.receive(uevent.Event{Action: "remove", Subsystem: "block", Path: "/devices/x/block/" + name})
}

func bundleTar(t *testing.T, index string) string {
	return string(bundletest.Tar(t, bundletest.File{Name: "oci-layout", Data: []byte("{}")},
		bundletest.File{Name: "index.json", Data: []byte(index)}))
}

// TestTwoSticks plugs in two sticks with the same label at once. The node reads one after the other, and each gets the result. The LED
// blinks while a stick is read, is on when the last one is done, and returns to its trigger when that one is pulled out.
func TestTwoSticks(t *testing.T) {
	one := newStick(t, map[string]string{"one.tar": bundleTar(t, "[1]")})
	two := newStick(t, map[string]string{"two.tar": bundleTar(t, "[2]")})
	l := newLight(t)
	n := &node{done: make(chan struct{}, 10), during: func() { l.want("while a stick is read", led.Blinking) }}
	one.plug()
	two.plug()
	m, await := startWith(t, one.label, n, l.LED)
	<-n.done
	<-n.done
	last := await("two sticks", "kept")
	l.want("both are done", led.On)
	if slices.Sort(n.seen); !slices.Equal(n.seen, []string{"one.tar 3 [1]", "two.tar 3 [2]"}) {
		t.Errorf("read: %q", n.seen)
	}
	first, second := one, two
	if last.Device == filepath.Base(one.device) {
		first, second = two, one
	}
	m.pullOut(first)
	l.want("the stick that was read first is pulled out", led.On)
	m.pullOut(second)
	l.want("both are pulled out", "mmc0")
	if first.cat("islet-edge.json") != "report 1\n" || second.cat("islet-edge.json") != "report 2\n" {
		t.Errorf("results %q and %q", first.cat("islet-edge.json"), second.cat("islet-edge.json"))
	}
}

// TestPulledOut pulls out a stick while its bundle is read. The result says what to do, and the LED shows it. The stick works when it is
// plugged in again.
func TestPulledOut(t *testing.T) {
	s := newStick(t, map[string]string{"b.tar": bundleTar(t, strings.Repeat("0123", 1<<20))})
	whole, err := os.ReadFile(s.image)
	must(t, err)
	l := newLight(t)
	n := &node{done: make(chan struct{}, 10), during: func() {
		if err := os.Truncate(s.image, 4<<10); err != nil { // reads of the rest of the loop device fail
			t.Error(err)
		}
	}}
	m, await := startWith(t, s.label, n, l.LED)
	s.plug()
	<-n.done
	if got := await("pulled out", Refused); !strings.Contains(got.Why, "plug it in again") {
		t.Errorf("%+v", got)
	}
	l.want("pulled out", led.Heartbeat)
	m.pullOut(s)
	l.want("after that", "mmc0")
	must(t, os.WriteFile(s.image, whole, 0o600))
	n.mu.Lock()
	n.during = nil
	n.mu.Unlock()
	s.plug()
	<-n.done
	await("plugged in again", "kept")
	l.want("plugged in again", led.On)
	s.pull()
	if len(n.seen) != 1 || s.cat("islet-edge.json") == "" {
		t.Errorf("%q, result %q", n.seen, s.cat("islet-edge.json"))
	}
}

// TestMissingLED checks that an LED that this machine does not have is reported once, at the start, by the name of its field.
func TestMissingLED(t *testing.T) {
	var logged bytes.Buffer
	m := New(Config{Label: "ISLET", LED: "islet-none", Log: slog.New(slog.NewTextHandler(&logged, nil))})
	ended, end := context.WithCancel(t.Context())
	end()
	must(t, m.Run(ended))
	if n := strings.Count(logged.String(), " field=bundle.medium.led led=islet-none "); n != 1 {
		t.Errorf("%d reports at the start: %s", n, logged.String())
	}
	logged.Reset()
	m.logLED(m.led.Set(led.On))
	m.logLED(m.led.Restore())
	m.logLED(m.led.Set(led.Heartbeat))
	if logged.Len() > 0 {
		t.Errorf("it is reported again: %s", logged.String())
	}
}

// TestIsSlow checks when the reads of a file have taken too long.
func TestIsSlow(t *testing.T) {
	for _, c := range []struct {
		bytes int64
		took  time.Duration
		want  bool
	}{
		{maxChunk, 59 * time.Second, false}, // a defective block that the kernel reads again
		{2 * maxChunk, 118 * time.Second, false},
		{4 * maxChunk, 4 * 59 * time.Second, true},
		{1 << 30, time.Hour, false},
		{1 << 30, 19 * time.Hour, true},
	} {
		if got := isSlow(c.bytes, c.took, answerTime); got != c.want {
			t.Errorf("%d bytes in %v: %v", c.bytes, c.took, got)
		}
	}
}
