package hardware

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/device/devicemanager"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/internal/podtest"
	"github.com/islet-edge/islet/internal/uevent"
)

func TestMain(m *testing.M) { os.Exit(eventtest.Main(m, "hardware")) }

// A bench consists of the hardware manager, the real device manager and a real store.
type bench struct {
	t       *testing.T
	classes []config.DeviceClass
	root    string
	dir     string
	store   *store.Store
	manager *devicemanager.Manager
	hw      *Hardware
	stop    func() // stops Run

	changed chan struct{} // capacity 1

	mu       sync.Mutex
	pods     map[types.UID]*v1.Pod
	events   []string
	restarts []string
}

func newBench(t *testing.T, root string, classes ...config.DeviceClass) *bench {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "islet.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	b := &bench{t: t, classes: classes, root: root, dir: filepath.Join(t.TempDir(), "devices"), store: s, changed: make(chan struct{}, 1), pods: map[types.UID]*v1.Pod{}}
	b.start()
	t.Cleanup(func() { b.stop() })
	return b
}

// start starts the managers as an agent does.
func (b *bench) start() {
	b.t.Helper()
	b.manager = devicemanager.New(devicemanager.Config{Store: b.store, Changed: func() {
		if b.hw != nil {
			b.hw.Poke()
		}
		b.signal()
	}, PodChanged: func(types.UID) { b.signal() }, Log: slog.New(slog.DiscardHandler)})
	if err := b.manager.Load(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	hw, err := Open(b.t.Context(), Config{Classes: b.classes, Manager: b.manager, Meta: b.store, Events: eventtest.Sink(b.record), Root: b.root, Dir: b.dir, Log: slog.New(slog.DiscardHandler),
		Pod: func(uid types.UID) *v1.Pod {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.pods[uid]
		},
		Restart: func(uid types.UID, container string, grace time.Duration) {
			b.mu.Lock()
			b.restarts = append(b.restarts, string(uid)+"/"+container+" "+grace.String())
			b.mu.Unlock()
			b.signal()
		},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.hw = hw
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); hw.Run(ctx) }()
	b.stop = func() { cancel(); <-done }
}

func (b *bench) signal() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

func (b *bench) record(e eventtest.Event) {
	b.mu.Lock()
	b.events = append(b.events, e.Reason+" "+string(e.Pod.UID)+"/"+e.Container)
	b.mu.Unlock()
	b.signal()
}

// await waits until the given function returns true.
func (b *bench) await(what string, is func() bool) {
	b.t.Helper()
	for !is() {
		select {
		case <-b.changed:
		case <-b.t.Context().Done():
			b.t.Fatalf("not reached: %s", what)
		}
	}
}

// room returns the capacity and the allocatable of a resource.
func (b *bench) room(name string) [2]int64 {
	capacity, allocatable := b.manager.Resources()
	c, a := capacity[v1.ResourceName(name)], allocatable[v1.ResourceName(name)]
	return [2]int64{c.Value(), a.Value()}
}

// pod stores a pod with one container for each element of counts. Each element is the quantity of the resource that the container requests.
// The containers are named c0, c1 and so on.
func (b *bench) pod(uid, name string, counts ...int64) *v1.Pod {
	pod := podtest.New(uid, podtest.GracePeriod(7), podtest.Containers())
	for i, n := range counts {
		list := v1.ResourceList{v1.ResourceName(name): *resource.NewQuantity(n, resource.DecimalSI)}
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: "c" + string(rune('0'+i)), Resources: v1.ResourceRequirements{Limits: list, Requests: list}})
	}
	if err := b.store.UpdatePods(b.t.Context(), []store.Pod{{Pod: pod, Source: "file", Origin: uid}}, nil); err != nil {
		b.t.Fatal(err)
	}
	b.mu.Lock()
	b.pods[pod.UID] = pod
	b.mu.Unlock()
	return pod
}

// run admits the pod and prepares a container, as a worker does. It returns the container's device nodes with their
// permissions, and its groups.
func (b *bench) run(pod *v1.Pod, container int) (nodes map[string]string, groups []int64, err error) {
	b.t.Helper()
	ctx, ctr := b.t.Context(), &pod.Spec.Containers[container]
	if _, refusal, err := b.manager.Admit(ctx, pod); err != nil || refusal != "" {
		b.t.Fatalf("%s is refused: %s, %v", pod.UID, refusal, err)
	}
	if err := b.manager.Prepare(ctx, pod); err != nil {
		b.t.Fatal(err)
	}
	if err := b.manager.Start(ctx, pod, ctr); err != nil {
		return nil, nil, err
	}
	out := &api.ContainerConfig{Linux: &api.LinuxContainerConfig{SecurityContext: &api.LinuxContainerSecurityContext{}}}
	if err := b.manager.Container(ctx, pod, ctr, out); err != nil {
		b.t.Fatal(err)
	}
	nodes = map[string]string{}
	for _, d := range out.Devices {
		nodes[d.ContainerPath] = strings.TrimPrefix(d.HostPath, b.root) + " " + d.Permissions
	}
	return nodes, out.Linux.SecurityContext.SupplementalGroups, nil
}

func (b *bench) mustRun(pod *v1.Pod, container int) (nodes map[string]string, groups []int64) {
	b.t.Helper()
	nodes, groups, err := b.run(pod, container)
	if err != nil {
		b.t.Fatal(err)
	}
	return nodes, groups
}

func serialClass() config.DeviceClass { return class("islet.dev/serial", paths("/dev/ttyUSB*")) }

const modemID = "usb-10c4:ea60-0001-if00-tty"

// modem plugs in a modem and returns its directory in sysfs.
func (tr *tree) modem(port, name string, minor uint32) (sys string) {
	itf := tr.usb("1", port, "10c4", "ea60", "0001", "cp210x")
	tr.node(itf+"/"+name+"/tty/"+name, "tty", name, char(188, minor))
	return itf
}

func (tr *tree) pull(itf, name string, minor uint32) {
	tr.unplug(filepath.Dir(itf), name, char(188, minor))
}

func TestGive(t *testing.T) {
	tr := board(t)
	tr.requireNoError(os.Chown(tr.absolutePath("/dev/ttyUSB0"), 0, 20))
	gps := class("islet.dev/gps", paths("/dev/ttyACM0"))
	gps.ContainerPath, gps.Group = "/dev/gps", new(intstr.FromString("dialout"))
	gpio := class("islet.dev/gpio", paths("/dev/gpiochip*"))
	gpio.ContainerPath, gpio.Shared, gpio.Permissions, gpio.Group = "/dev/gpiochip0", 2, "r", new(intstr.FromInt32(993))
	camera := class("islet.dev/camera", config.DeviceMatch{USB: &config.USBMatch{Vendor: "046d"}})
	camera.Unit = unitDevice
	nobody := class("islet.dev/i2c", paths("/dev/i2c-1"))
	nobody.Group = new(intstr.FromString("i2c"))
	b := newBench(t, tr.root, serialClass(), gps, gpio, camera, nobody)
	for name, want := range map[string][2]int64{"islet.dev/serial": {1, 1}, "islet.dev/gps": {1, 1}, "islet.dev/gpio": {4, 4}, "islet.dev/camera": {1, 1}} {
		if got := b.room(name); got != want {
			t.Errorf("%s: %v, not %v", name, got, want)
		}
	}
	check := func(pod *v1.Pod, container int, want map[string]string, group int64) {
		t.Helper()
		nodes, groups := b.mustRun(pod, container)
		if len(nodes) != len(want) || group != 0 && !slices.Equal(groups, []int64{group}) {
			t.Errorf("%s has %v, groups %v", pod.UID, nodes, groups)
		}
		for path, host := range want {
			if nodes[path] != host {
				t.Errorf("%s has %s for %s, not %s", pod.UID, nodes[path], path, host)
			}
		}
	}
	check(b.pod("a", "islet.dev/serial", 1), 0, map[string]string{"/dev/ttyUSB0": "/dev/ttyUSB0 rw"}, 20)
	check(b.pod("b", "islet.dev/gps", 1), 0, map[string]string{"/dev/gps": b.dir + "/b/c0/islet.dev_gps/0 rw"}, 20)
	var st unix.Stat_t
	tr.requireNoError(unix.Stat(b.dir+"/b/c0/islet.dev_gps/0", &st))
	if st.Gid != 20 || st.Mode != unix.S_IFCHR|0o660 || st.Rdev != unix.Mkdev(166, 0) {
		t.Errorf("its own node: %+v", st)
	}
	check(b.pod("c", "islet.dev/camera", 1), 0, map[string]string{"/dev/video0": "/dev/video0 rw", "/dev/video1": "/dev/video1 rw", "/dev/media0": "/dev/media0 rw"}, 0)
	// A container that requests two shared chips gets two different chips. The next container gets the chip with the fewest users.
	chips := b.pod("d", "islet.dev/gpio", 2, 1)
	check(chips, 0, map[string]string{"/dev/gpiochip0": b.dir + "/d/c0/islet.dev_gpio/0 r", "/dev/gpiochip1": b.dir + "/d/c0/islet.dev_gpio/1 r"}, 993)
	check(chips, 1, map[string]string{"/dev/gpiochip0": b.dir + "/d/c1/islet.dev_gpio/0 r"}, 993)
	if _, refusal, err := b.manager.Admit(t.Context(), b.pod("e", "islet.dev/i2c", 1)); err != nil ||
		!strings.Contains(refusal, "the host has no group i2c") {
		t.Errorf("an unknown group: %q, %v", refusal, err)
	}
	apart := b.pod("f", "islet.dev/gpio", 1)
	apart.Spec.HostUsers = new(bool)
	if _, refusal, err := b.manager.Admit(t.Context(), apart); err != nil || !strings.Contains(refusal, "with hostUsers: false") {
		t.Errorf("another path in a user namespace: %q, %v", refusal, err)
	}
	tr.requireNoError(b.manager.Release(t.Context(), "b"))
	b.hw.Poke()
	b.await("the node of a pod that is gone is removed", func() bool {
		_, err := os.Stat(b.dir + "/b")
		if err != nil {
			return true
		}
		b.signal()
		return false
	})
}

// TestNodesOfStartingPods checks that a scan removes no device node of a container that starts at the same time.
func TestNodesOfStartingPods(t *testing.T) {
	tr := board(t)
	gps := class("islet.dev/gps", paths("/dev/ttyACM0"))
	gps.Group = new(intstr.FromInt32(20))
	b := newBench(t, tr.root, gps)
	var scans sync.WaitGroup
	defer scans.Wait()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	scans.Go(func() {
		for ctx.Err() == nil {
			if err := b.hw.publishDevices(); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 60 {
		pod := b.pod("p"+strconv.Itoa(i), "islet.dev/gps", 1)
		nodes, _ := b.mustRun(pod, 0)
		for _, host := range nodes {
			if _, err := os.Stat(strings.Fields(host)[0]); err != nil {
				t.Fatal(err)
			}
		}
		tr.requireNoError(b.manager.Release(t.Context(), pod.UID))
	}
}

// TestRealDevices checks that terminals and loop devices of this machine are added and removed as devices.
func TestRealDevices(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	loop := class("islet.dev/disk", config.DeviceMatch{Subsystem: "block", Paths: []string{"/dev/loop4711"}})
	b := newBench(t, "", class("islet.dev/pty", paths("/dev/pts/*")), loop)
	before := b.room("islet.dev/pty")[0]
	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	b.await("a terminal is there", func() bool { return b.room("islet.dev/pty")[0] > before })
	pty.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer control.Close()
	const number = 4711
	if err := unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_ADD, number); err != nil {
		t.Skip(err)
	}
	b.await("a disk is there", func() bool { return b.room("islet.dev/disk") == [2]int64{1, 1} })
	if err := unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_REMOVE, number); err != nil {
		t.Fatal(err)
	}
	b.await("it is gone", func() bool { return b.room("islet.dev/disk") == [2]int64{0, 0} })
	if got := cmp.Or(b.hw.MissingDevices("p")...); got != "" {
		t.Error(got)
	}
}

func TestRelevantEvents(t *testing.T) {
	for _, c := range []struct {
		subsystem, device string
		want              bool
	}{{"block", "loop0", true}, {"usb", "", false}, {"net", "x", false}, {"queues", "x", false}} {
		if got := isRelevant(uevent.Event{Action: "add", Subsystem: c.subsystem, Device: c.device}); got != c.want {
			t.Errorf("%s %q: %v", c.subsystem, c.device, got)
		}
	}
}
