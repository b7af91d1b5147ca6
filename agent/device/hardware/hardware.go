package hardware

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/device/devicemanager"
	"github.com/islet-edge/islet/internal/bootid"
	"github.com/islet-edge/islet/internal/config"
)

const (
	// together is how long changes are collected: a camera is several nodes.
	together = 200 * time.Millisecond
	// udevPatience is how long a device waits for udev to set its owner.
	udevPatience = 3 * time.Second
)

// A Manager gives devices to containers. *device.Manager is one.
type Manager interface {
	Connect(ctx context.Context, resource string, p devicemanager.Provider) (*devicemanager.Link, error)
	Held() []devicemanager.Held
}

// Meta stores what must be known after a restart of the agent.
type Meta interface {
	Meta(ctx context.Context, key string) (value string, found bool, err error)
	SetMeta(ctx context.Context, key, value string) error
}

// Events takes what happens to pods.
type Events interface {
	Pod(pod *v1.Pod, container, eventType, reason, message string)
}

// Config is what Hardware needs.
type Config struct {
	Classes []config.DeviceClass
	Manager Manager
	Meta    Meta
	Events  Events
	Pod     func(types.UID) *v1.Pod // nil: it is not wanted any more
	// Restart has a container run anew whose device is back. It must not block.
	Restart func(uid types.UID, container string, grace time.Duration)
	Dir     string // for device nodes of containers, in the run directory
	Root    string // of the host's files; empty: /
	Log     *slog.Logger
}

// Hardware is the devices of the host. Nil is that of a node without any in its
// configuration.
type Hardware struct {
	c      Config
	host   host
	links  []*devicemanager.Link // by class
	poke   chan struct{}         // capacity 1
	memory memory

	mu      sync.Mutex // not held while files are read
	found   [][]*unit  // by class
	kept    []Kept
	missing map[heldDevice]bool
	told    bool                 // publish was called
	since   map[string]time.Time // when a node was first seen that udev was not done with, by mark
}

// Kept is a device that a pattern matches and that is not given to containers.
type Kept struct{ Path, Resource, Why string }

// A heldDevice is one of a resource that a container has.
type heldDevice struct {
	holder
	id string
}

// Open says which devices there are now; later changes are Run's. It gives nil if there are
// to be none.
func Open(ctx context.Context, c Config) (*Hardware, error) {
	if len(c.Classes) == 0 {
		return nil, nil
	}
	h := &Hardware{c: c, host: host{c.Root}, poke: make(chan struct{}, 1), missing: map[heldDevice]bool{},
		since: map[string]time.Time{}}
	h.memory.meta = c.Meta
	if err := h.memory.load(ctx, bootid.Kernel(os.DirFS(h.host.at("/")))); err != nil {
		return nil, err
	}
	for i := range c.Classes {
		l, err := c.Manager.Connect(ctx, c.Classes[i].Resource, &provider{h, i})
		if err != nil {
			h.close()
			return nil, fmt.Errorf("devices of %s: %w", c.Classes[i].Resource, err)
		}
		h.links = append(h.links, l)
	}
	if _, err := h.scan(); err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// close says that there are no devices any more. The agent does not when it ends: the pods
// go on.
func (h *Hardware) close() {
	for _, l := range h.links {
		l.Close()
	}
}

// Poke has it look again: devices were given, or given back.
func (h *Hardware) Poke() {
	if h == nil {
		return
	}
	select {
	case h.poke <- struct{}{}:
	default:
	}
}

// Run follows devices that come and go until ctx ends. Where the kernel does not tell,
// those stay that there are.
func (h *Hardware) Run(ctx context.Context) error {
	if h == nil {
		return nil
	}
	var following sync.WaitGroup
	defer following.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if socket, err := listenUevents(); err != nil {
		h.c.Log.Warn("devices that are plugged in are seen by their nodes only", "error", err)
	} else {
		following.Go(func() {
			if err := follow(ctx, socket, h.Poke); err != nil && ctx.Err() == nil {
				h.c.Log.Error("devices that are plugged in are seen by their nodes only", "error", err)
			}
		})
	}
	watch, err := newWatch(h.host, h.c.Classes)
	if err != nil {
		h.c.Log.Warn("devices are seen only if the kernel tells of them", "error", err)
	} else {
		following.Go(func() { watch.follow(ctx, h.Poke) })
	}
	h.loop(ctx, watch)
	return nil
}

// loop looks at once, and soon after each message.
func (h *Hardware) loop(ctx context.Context, watch *watch) {
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.poke:
			due.Reset(together)
			select { // what comes meanwhile is seen by the same look, which is not put off by it
			case <-ctx.Done():
				return
			case <-due.C:
			}
		case <-due.C:
		}
		if wait := h.look(watch); wait > 0 {
			due.Reset(wait)
		}
	}
}

// look scans, and says after which time to do so without a message; 0: not at all.
func (h *Hardware) look(watch *watch) time.Duration {
	for {
		pending, err := h.scan()
		if err != nil {
			h.c.Log.Error("the devices of the host cannot be listed", "error", err)
		}
		if watch == nil {
			return pending
		}
		switch fresh, err := watch.refresh(pending > 0); {
		case err != nil:
			h.c.Log.Warn("not all directories of devices can be watched", "error", err)
			return pending
		case !fresh:
			return pending
		}
	}
}

// scan finds what there is and tells of it. It returns how long to wait at most for udev;
// 0: for nothing.
func (h *Hardware) scan() (pending time.Duration, err error) {
	nodes, kept, f, err := h.host.find(h.c.Classes)
	if err != nil {
		return 0, err
	}
	now := time.Now()
	waiting := map[string]time.Time{}
	found := make([][]*unit, len(nodes))
	for i := range nodes {
		there := slices.DeleteFunc(nodes[i], func(n *node) bool {
			if !f.locate(n) {
				return true
			}
			wait := h.forUdev(f, n, now, waiting)
			pending = max(pending, wait)
			return wait > 0
		})
		found[i] = f.units(&h.c.Classes[i], there, h.memory.ports())
	}
	h.mu.Lock()
	h.found, h.kept, h.since = found, kept, waiting
	h.mu.Unlock()
	return pending, h.publish()
}

// forUdev is how long a node has to wait for udev, which sets its owner after the kernel
// has made it.
func (h *Hardware) forUdev(f *finder, n *node, now time.Time, waiting map[string]time.Time) time.Duration {
	if n.sys == "" || !f.exists(udevControl) || f.exists(fmt.Sprintf("%s/%c%s", udevData, n.dir()[0], n.number)) {
		return 0
	}
	mark := f.mark(n)
	since, known := h.since[mark]
	if !known {
		since = now
	}
	waiting[mark] = since
	return udevPatience - now.Sub(since)
}

func (h host) exists(path string) bool {
	_, err := os.Lstat(h.at(path))
	return err == nil
}
