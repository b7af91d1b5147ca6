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
	"github.com/islet-edge/islet/internal/event"
	"github.com/islet-edge/islet/internal/uevent"
)

const (
	// collectTime is the delay between the first change and the scan. It is needed because a device such as a camera
	// has several nodes.
	collectTime = 200 * time.Millisecond
	// udevTimeout is the maximum time to wait until udev has set the owner of a new node.
	udevTimeout = 3 * time.Second
)

// A Manager allocates devices to containers. *devicemanager.Manager implements it.
type Manager interface {
	Connect(ctx context.Context, resource string, p devicemanager.Provider) (*devicemanager.Link, error)
	Holdings() []devicemanager.Holding
}

// Meta stores values across restarts of the agent.
type Meta interface {
	Meta(ctx context.Context, key string) (value string, found bool, err error)
	SetMeta(ctx context.Context, key, value string) error
}

// Config is the input of Open.
type Config struct {
	Classes []config.DeviceClass
	Manager Manager
	Meta    Meta
	Events  event.Sink
	Pod     func(types.UID) *v1.Pod // returns nil if the pod is no longer desired
	// Restart restarts a container whose device is plugged in again. It must not block.
	Restart func(uid types.UID, container string, grace time.Duration)
	Dir     string // directory of the device nodes for containers, in the run directory
	Root    string // root of the host's files; / if it is empty
	Log     *slog.Logger
}

// Hardware provides the configured devices of the host. A nil *Hardware provides no devices.
type Hardware struct {
	c           Config
	host        host
	links       []*devicemanager.Link // by class
	scanRequest chan struct{}         // capacity 1
	history     history
	nodes       sync.Mutex // locked while device nodes are created or removed; locked before the Manager's mutex

	mu              sync.Mutex // not locked while files are read
	foundUnits      [][]*unit  // by class
	withheldDevices []WithheldDevice
	missing         map[heldDevice]bool
	published       bool                 // the devices have been published before
	udevSince       map[string]time.Time // when each node that waits for udev was first seen, by nodeMark
}

// A WithheldDevice is a device that matches but that no container gets.
type WithheldDevice struct{ Path, Resource, Why string }

// A heldDevice identifies a device that a container has: by the container, the resource and the ID of the unit.
type heldDevice struct {
	holder
	id string
}

// Open scans the host and reports the devices to the Manager. Run reports later changes. Open returns nil if no
// devices are configured.
func Open(ctx context.Context, c Config) (*Hardware, error) {
	if len(c.Classes) == 0 {
		return nil, nil
	}
	h := &Hardware{c: c, host: host{c.Root}, scanRequest: make(chan struct{}, 1), missing: map[heldDevice]bool{},
		udevSince: map[string]time.Time{}}
	h.history.meta = c.Meta
	if err := h.history.load(ctx, bootid.ReadKernel(os.DirFS(h.host.absolutePath("/")))); err != nil {
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

// close disconnects from the Manager after an error in Open. The agent does not call it when it exits, because the
// pods keep running.
func (h *Hardware) close() {
	for _, l := range h.links {
		l.Close()
	}
}

// Poke triggers a scan. It is called when devices were allocated or released.
func (h *Hardware) Poke() {
	if h == nil {
		return
	}
	select {
	case h.scanRequest <- struct{}{}:
	default:
	}
}

// Run watches for devices that are plugged in or removed until ctx ends. If it cannot receive uevents, it only watches
// /dev. If it cannot watch /dev, it only receives uevents.
func (h *Hardware) Run(ctx context.Context) error {
	if h == nil {
		return nil
	}
	var following sync.WaitGroup
	defer following.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if socket, err := uevent.Listen(); err != nil {
		h.c.Log.Warn("cannot receive kernel uevents: devices are detected only by changes in /dev", "error", err)
	} else {
		following.Go(func() {
			received := func(e uevent.Event) {
				if isRelevant(e) {
					h.Poke()
				}
			}
			if err := uevent.Watch(ctx, socket, received, h.Poke); err != nil && ctx.Err() == nil {
				h.c.Log.Error("receiving kernel uevents failed: devices are detected only by changes in /dev", "error", err)
			}
		})
	}
	watch, err := newWatch(h.host, h.c.Classes)
	if err != nil {
		h.c.Log.Warn("cannot watch /dev: devices are detected only by kernel uevents", "error", err)
	} else {
		following.Go(func() { watch.run(ctx, h.Poke) })
	}
	h.watchLoop(ctx, watch)
	return nil
}

// isRelevant reports whether a message may affect the devices. Network interfaces, which change with each pod, have no device node. If a
// driver that is newly bound creates nodes, there is a separate message for each node.
func isRelevant(e uevent.Event) bool {
	return e.Device != "" && e.Subsystem != "net" && e.Subsystem != "queues"
}

// watchLoop scans immediately, and collectTime after each Poke.
func (h *Hardware) watchLoop(ctx context.Context, watch *dirWatcher) {
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.scanRequest:
			due.Reset(collectTime)
			select { // the scan also covers later pokes, which do not delay it
			case <-ctx.Done():
				return
			case <-due.C:
			}
		case <-due.C:
		}
		if wait := h.rescan(watch); wait > 0 {
			due.Reset(wait)
		}
	}
}

// rescan scans the host and updates the watched directories. It returns the time after which to scan again even
// without a Poke, or 0.
func (h *Hardware) rescan(watch *dirWatcher) time.Duration {
	for {
		pending, err := h.scan()
		if err != nil {
			h.c.Log.Error("cannot list the devices of the host", "error", err)
		}
		if watch == nil {
			return pending
		}
		switch fresh, err := watch.updateDirs(pending > 0); {
		case err != nil:
			h.c.Log.Warn("cannot watch all directories of devices", "error", err)
			return pending
		case !fresh:
			return pending
		}
	}
}

// scan finds the devices and publishes them. It returns how long the newest node still waits for udev, or 0.
func (h *Hardware) scan() (pending time.Duration, err error) {
	nodes, kept, f, err := h.host.findNodes(h.c.Classes)
	if err != nil {
		return 0, err
	}
	now := time.Now()
	waiting := map[string]time.Time{}
	found := make([][]*unit, len(nodes))
	for i := range nodes {
		present := slices.DeleteFunc(nodes[i], func(n *node) bool {
			if !f.locateNode(n) {
				return true
			}
			wait := h.udevWait(f, n, now, waiting)
			pending = max(pending, wait)
			return wait > 0
		})
		found[i] = f.groupUnits(&h.c.Classes[i], present, h.history.lastPorts())
	}
	h.mu.Lock()
	h.foundUnits, h.withheldDevices, h.udevSince = found, kept, waiting
	h.mu.Unlock()
	return pending, h.publishDevices()
}

// udevWait returns how long a node still waits for udev, or 0. udev sets the node's owner after the kernel has
// created the node.
func (h *Hardware) udevWait(f *finder, n *node, now time.Time, waiting map[string]time.Time) time.Duration {
	if n.sys == "" || !f.exists(udevControl) || f.exists(fmt.Sprintf("%s/%c%s", udevData, n.kind()[0], n.number)) {
		return 0
	}
	mark := f.nodeMark(n)
	since, known := h.udevSince[mark]
	if !known {
		since = now
	}
	waiting[mark] = since
	return udevTimeout - now.Sub(since)
}

func (h host) exists(path string) bool {
	_, err := os.Lstat(h.absolutePath(path))
	return err == nil
}
