package hardware

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestReplug checks that a container keeps running when its device is unplugged. The container is restarted when the device is plugged in
// again, even if the device node is a different one.
func TestReplug(t *testing.T) {
	tr := newTree(t)
	itf := tr.modem("1", "ttyUSB0", 0)
	c := serialClass()
	c.ContainerPath = "/dev/modem"
	b := newBench(t, tr.root, c)
	pod := b.pod("p", c.Resource, 1)
	if nodes, _ := b.mustRun(pod, 0); nodes["/dev/modem"] != "/dev/ttyUSB0 rw" {
		t.Fatalf("%v", nodes)
	}
	for round, agent := range []string{"runs on", "restarts meanwhile", "did not run"} {
		name := "ttyUSB" + string(rune('0'+round))
		b.mu.Lock()
		b.events, b.restarts = nil, nil
		b.mu.Unlock()
		if round == 2 {
			b.stop()
		}
		tr.pull(itf, name, uint32(round))
		if round < 2 {
			b.await("it is missing", func() bool { return len(b.hw.MissingDevices("p")) == 1 })
			b.await("nothing can be given", func() bool { return b.room(c.Resource) == [2]int64{1, 0} })
			if _, _, err := b.run(pod, 0); err == nil || !strings.Contains(err.Error(), notPluggedIn) {
				t.Errorf("the agent %s: the container starts without its device: %v", agent, err)
			}
			if st := b.manager.Status("p", "c0"); len(st) != 1 || st[0].Resources[0].Health != v1.ResourceHealthStatusUnhealthy ||
				*st[0].Resources[0].Message != notPluggedIn {
				t.Errorf("the agent %s: status %+v", agent, st)
			}
		}
		if round == 1 {
			b.stop()
			b.start()
			if got := b.hw.MissingDevices("p"); len(got) != 1 {
				t.Errorf("after a restart of the agent: missing %q", got)
			}
		}
		name = "ttyUSB" + string(rune('1'+round))
		itf = tr.modem(string(rune('2'+round)), name, uint32(round+1))
		if round == 2 {
			b.start()
		}
		b.await("it is restarted", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return slices.Contains(b.restarts, "p/c0 7s")
		})
		b.await("the device manager knows that it can be given", func() bool { return b.room(c.Resource) == [2]int64{1, 1} })
		if nodes, _ := b.mustRun(pod, 0); nodes["/dev/modem"] != "/dev/"+name+" rw" {
			t.Errorf("the agent %s: %v", agent, nodes)
		}
		b.mu.Lock()
		if want := []string{"DeviceUnplugged p/c0", "DevicePlugged p/c0"}; round == 0 && !slices.Equal(b.events, want) {
			t.Errorf("events: %q", b.events)
		}
		b.mu.Unlock()
		if got := b.hw.MissingDevices("p"); got != nil {
			t.Errorf("missing: %q", got)
		}
		if held := b.manager.Holdings(); len(held) != 1 || !slices.Equal(held[0].IDs, []string{modemID}) {
			t.Errorf("the agent %s: held %+v", agent, held)
		}
	}
	if _, err := b.hw.scan(); err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	b.restarts = nil
	b.mu.Unlock()
	if _, err := b.hw.scan(); err != nil || len(b.restarts) > 0 {
		t.Errorf("restarted without a change: %q, %v", b.restarts, err)
	}
	tr.requireNoError(b.manager.Release(t.Context(), "p"))
	tr.pull(itf, "ttyUSB3", 3)
	b.await("nothing is kept that nobody has", func() bool { return b.room(c.Resource) == [2]int64{0, 0} })
}

// TestRestartPolicy checks that a container is not stopped because of its device if its restart policy does not allow a restart.
func TestRestartPolicy(t *testing.T) {
	tr := newTree(t)
	itf := tr.modem("1", "ttyUSB0", 0)
	b := newBench(t, tr.root, serialClass())
	pod := b.pod("p", "islet.dev/serial", 1)
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	b.mustRun(pod, 0)
	tr.pull(itf, "ttyUSB0", 0)
	b.await("it is missing", func() bool { return len(b.hw.MissingDevices("p")) == 1 })
	tr.modem("1", "ttyUSB1", 1)
	b.await("it is back", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return slices.Contains(b.events, "DevicePlugged p/c0")
	})
	if _, err := b.hw.scan(); err != nil || len(b.restarts) > 0 {
		t.Errorf("restarted: %q, %v", b.restarts, err)
	}
}

// TestReboot checks that each of two pods gets its own device again after a reboot. Both devices have the same serial number, and the
// kernel finds them in another order.
func TestReboot(t *testing.T) {
	tr := newTree(t)
	tr.modem("1", "ttyUSB0", 0)
	tr.modem("2", "ttyUSB1", 1)
	b := newBench(t, tr.root, serialClass())
	want := map[string]string{}
	for _, uid := range []string{"p", "q"} {
		nodes, _ := b.mustRun(b.pod(uid, "islet.dev/serial", 1), 0)
		for path := range nodes {
			want[uid] = map[string]string{"/dev/ttyUSB0": "/dev/ttyUSB5", "/dev/ttyUSB1": "/dev/ttyUSB4"}[path]
		}
	}
	b.stop()
	tr2 := newTree(t)
	tr2.file("/proc/sys/kernel/random/boot_id", "boot-2\n")
	b.root, b.dir = tr2.root, filepath.Join(t.TempDir(), "devices")
	tr2.modem("2", "ttyUSB4", 4)
	b.start() // the other device appears late
	p, q := b.pods["p"], b.pods["q"]
	late := map[string]*v1.Pod{"/dev/ttyUSB5": p, "/dev/ttyUSB4": q}
	if want["p"] == "/dev/ttyUSB4" {
		late = map[string]*v1.Pod{"/dev/ttyUSB5": q, "/dev/ttyUSB4": p}
	}
	if nodes, _ := b.mustRun(late["/dev/ttyUSB4"], 0); nodes["/dev/ttyUSB4"] == "" {
		t.Errorf("the pod whose device was found has %v", nodes)
	}
	if _, _, err := b.run(late["/dev/ttyUSB5"], 0); err == nil {
		t.Error("a pod runs without its device")
	}
	tr2.modem("1", "ttyUSB5", 5)
	b.await("it is there", func() bool { return len(b.hw.MissingDevices("p"))+len(b.hw.MissingDevices("q")) == 0 })
	if nodes, _ := b.mustRun(late["/dev/ttyUSB5"], 0); nodes["/dev/ttyUSB5"] == "" {
		t.Errorf("the pod whose device came late has %v", nodes)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.restarts) > 0 {
		t.Errorf("containers were restarted after a reboot: %q", b.restarts)
	}
}

// TestLateNode checks that a device is added even if its device node appears after the kernel's event. The same applies if udev changes the
// device node or its links after the event.
func TestLateNode(t *testing.T) {
	tr := newTree(t)
	tr.dir("/run/udev/data")
	b := newBench(t, tr.root, serialClass(), class("islet.dev/gps", paths("/dev/serial/by-id/*gps*")))
	itf := tr.modem("1", "ttyUSB0", 0)
	b.await("it is there without udev", func() bool { return b.room("islet.dev/serial") == [2]int64{1, 1} })
	tr.pull(itf, "ttyUSB0", 0)
	b.await("it is gone", func() bool { return b.room("islet.dev/serial") == [2]int64{0, 0} })

	tr.file("/run/udev/control", "")
	tr.modem("1", "ttyUSB1", 1)
	tr.file("/run/udev/data/c188:1", "")
	b.await("it is there with udev", func() bool { return b.room("islet.dev/serial") == [2]int64{1, 1} })
	tr.modem("2", "ttyUSB2", 2) // udev does not process this device, and the wait for udev times out
	b.await("it is there though udev does not answer", func() bool { return b.room("islet.dev/serial") == [2]int64{2, 2} })

	tr.node(tr.usb("1", "3", "1546", "01a7", "", "cdc_acm")+"/tty/ttyACM0", "tty", "ttyACM0", char(166, 0))
	tr.file("/run/udev/data/c166:0", "")
	tr.link("/dev/serial/by-id/usb-gps", "/dev/ttyACM0")
	b.await("it is there by its link", func() bool { return b.room("islet.dev/gps") == [2]int64{1, 1} })
	tr.requireNoError(os.RemoveAll(tr.absolutePath("/dev/serial")))
	b.await("it is gone with its link", func() bool { return b.room("islet.dev/gps") == [2]int64{0, 0} })
	tr.link("/dev/serial/by-id/usb-gps", "/dev/ttyACM0")
	b.await("its link is back", func() bool { return b.room("islet.dev/gps") == [2]int64{1, 1} })
}
