package medium

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/islet-edge/islet/internal/api"
	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/led"
	"github.com/islet-edge/islet/internal/uevent"
)

// Results of a medium, in addition to the results of a trial.
const (
	Working = "working" // the node reads the medium, or its bundle is on trial
	InUse   = "inUse"   // the newest bundle is in use already
	Nothing = "nothing" // there is no bundle
	Refused = "refused" // no bundle can be used
)

// ErrBusy means that the node cannot try a bundle now, because it tries another bundle, a configuration or a version of islet.
var ErrBusy = errors.New("the node is busy with another trial")

// An Offer is a bundle on a medium.
type Offer struct {
	Name string // of its file or directory
	Open func() (format.Layout, error)
}

// Bundles decides about bundles. *bundle.Node implements it.
type Bundles interface {
	// ApplyNewest starts the trial of the newest bundle that is for this node. It returns the name of its offer, also after an error. The
	// error is ErrBusy if the same call can succeed later.
	ApplyNewest(ctx context.Context, offers []Offer) (name string, b api.Bundle, err error)
	// AwaitTrial waits until no bundle is on trial, and returns the last outcome. It may be nil.
	AwaitTrial(ctx context.Context) (*api.BundleOutcome, error)
	// Report returns the state of the node, which becomes the result file.
	Report(ctx context.Context) ([]byte, error)
}

// Config configures New.
type Config struct {
	Label   string // of the file system
	Result  bool   // write the result file
	LED     string // the name of an LED in /sys/class/leds; may be empty
	Node    string // name of this node
	Bundles Bundles
	Now     func() time.Time
	Log     *slog.Logger

	answerTime time.Duration // the maximum duration of a request; tests set it
	busyPause  time.Duration // the time after ErrBusy; tests set it
}

// A Medium watches for sticks. Status may be called concurrently with Run.
type Medium struct {
	c    Config
	wake chan struct{}
	led  *led.LED

	mu       sync.Mutex
	waiting  []string          // names of devices with an event
	examined map[string]device // by name
	busy     bool              // a device is being examined
	status   *api.BundleMedium
	ledFault string // the last problem of the LED that was logged
}

// maxExamined limits the number of devices that are remembered.
const maxExamined = 1024

// New returns a Medium that is not watching yet.
func New(c Config) *Medium {
	if c.answerTime == 0 {
		c.answerTime = answerTime
	}
	if c.busyPause == 0 {
		c.busyPause = 10 * time.Second
	}
	return &Medium{c: c, wake: make(chan struct{}, 1), led: led.New(led.Dir, c.LED), examined: map[string]device{}}
}

// Status returns the last medium with the label, or nil. It returns nil also if m is nil.
func (m *Medium) Status() *api.BundleMedium {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status
}

// Run reports an LED that does not exist. Then it examines the devices that exist, and after that each one that is plugged in, until ctx
// ends. A failure is logged.
func (m *Medium) Run(ctx context.Context) error {
	m.logLED(m.led.Check())
	var watching sync.WaitGroup
	defer watching.Wait()
	socket, err := uevent.Listen()
	if err != nil {
		m.c.Log.Error("media cannot be detected", "error", err)
		return nil
	}
	watching.Go(func() {
		if err := uevent.Watch(ctx, socket, m.receive, m.scan); err != nil && ctx.Err() == nil {
			m.c.Log.Error("media cannot be detected any more", "error", err)
		}
	})
	m.scan()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		}
		m.examineAll(ctx)
	}
}

// scan lets the loop examine all devices.
func (m *Medium) scan() {
	names, err := listDevices()
	if err != nil {
		m.c.Log.Error("media cannot be detected", "error", err)
	}
	slices.Sort(names) // disks before their partitions
	m.add(names...)
}

// receive lets the loop examine the device of an event.
func (m *Medium) receive(e uevent.Event) {
	if e.Subsystem != "block" {
		return
	}
	name := path.Base(e.Path)
	if e.Action == "remove" {
		m.mu.Lock()
		if d, ok := m.examined[name]; ok && !d.counted {
			delete(m.examined, name)
		}
		last := m.status
		m.mu.Unlock()
		if last != nil && last.Device == name {
			m.logLED(m.led.Restore())
		}
		return
	}
	m.add(name)
}

// logLED logs a problem of the LED, unless it equals the last one that was logged.
func (m *Medium) logLED(err error) {
	if err == nil {
		return
	}
	m.mu.Lock()
	known := m.ledFault == err.Error()
	m.ledFault = err.Error()
	m.mu.Unlock()
	if !known {
		m.c.Log.Warn("the LED for media cannot be set", "field", "bundle.medium.led", "led", m.c.LED, "error", err)
	}
}

func (m *Medium) add(names ...string) {
	m.mu.Lock()
	for _, name := range names {
		if !slices.Contains(m.waiting, name) {
			m.waiting = append(m.waiting, name)
		}
	}
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// next returns the next device that was not examined with its present medium.
func (m *Medium) next() (d device, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.busy = true
	for len(m.waiting) > 0 {
		name := m.waiting[0]
		m.waiting = m.waiting[1:]
		d, ok = readDevice(name)
		if !ok {
			continue
		}
		if old, known := m.examined[name]; known && old.medium == d.medium {
			continue
		}
		if len(m.examined) >= maxExamined {
			clear(m.examined)
		}
		m.examined[name] = d
		return d, true
	}
	m.waiting, m.busy = nil, false
	return d, false
}

// examineAll examines the devices that wait. One helper looks for the label on all of them, as long as it answers.
func (m *Medium) examineAll(ctx context.Context) {
	var s *session
	defer func() { s.close() }()
	for ctx.Err() == nil {
		d, ok := m.next()
		if !ok {
			return
		}
		if s == nil {
			var err error
			if s, err = startSession(ctx, m.c.answerTime); err != nil {
				m.c.Log.Error("a medium cannot be read", "device", d.name, "error", err)
				continue
			}
		}
		a, _, err := s.do(request{Do: "mount", Device: d.node, Label: m.c.Label}, nil)
		switch {
		case a.FileSystem != "":
			m.use(ctx, s, d, a, err)
		case errors.Is(err, errSilent):
			m.c.Log.Warn("a device is ignored until it is plugged in again", "device", d.name, "error", err)
		default: // another device; many cannot be read, such as an empty card reader
			continue
		}
		s.close()
		s = nil
	}
}
