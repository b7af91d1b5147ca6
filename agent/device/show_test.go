package device

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/device/devicemanager"
	"github.com/islet-edge/islet/agent/device/hardware"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/podtest"
)

// TestDevices checks that the list contains built-in devices and devices of device plugins. Each device is shown with the pods that use it.
func TestDevices(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("device nodes need root")
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	root := t.TempDir()
	for _, dir := range []string{"dev/pts", "sys/dev/char", "proc/self"} {
		must(os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	must(unix.Mknod(root+"/dev/pts/3", unix.S_IFCHR|0o600, int(unix.Mkdev(136, 3))))
	must(unix.Mknod(root+"/dev/diska", unix.S_IFBLK|0o600, int(unix.Mkdev(7, 3))))
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "islet.db"), log)
	must(err)
	defer s.Close()
	pod := podtest.New("p", podtest.UID("uid-p"), podtest.Limits(podtest.List(map[v1.ResourceName]string{"islet.dev/pty": "1"})))
	must(s.UpdatePods(t.Context(), []store.Pod{{Pod: pod, Source: "file", Origin: "p"}}, nil))
	d, err := desired.New(desired.Config{Store: s, Poke: func(types.UID) {}, Log: log})
	must(err)
	changed := make(chan types.UID, 100)
	m := devicemanager.New(devicemanager.Config{Store: s, PodChanged: func(uid types.UID) { changed <- uid }, Log: log})
	must(m.Load(t.Context()))
	hw, err := hardware.Open(t.Context(), hardware.Config{
		Classes: []config.DeviceClass{
			{Resource: "islet.dev/pty", Match: []config.DeviceMatch{{Paths: []string{"/dev/pts/*"}}}, Shared: 2},
			{Resource: "islet.dev/disk", Match: []config.DeviceMatch{{Paths: []string{"/dev/disk*"}}}},
		},
		Manager: m, Meta: s, Pod: func(types.UID) *v1.Pod { return nil }, Restart: func(types.UID, string, time.Duration) {}, Dir: t.TempDir(), Root: root, Log: log,
	})
	must(err)
	plugin, err := m.Connect(t.Context(), "example.com/thing", nothing{})
	must(err)
	must(plugin.Devices([]devicemanager.Device{{ID: "b", Healthy: true}, {ID: "a", Message: "broken"}}))
	if _, refusal, err := m.Admit(t.Context(), pod); err != nil || refusal != "" {
		t.Fatal(refusal, err)
	}
	wanted := func(uid types.UID) *v1.Pod {
		p, _ := d.Get(uid)
		return p.Pod
	}
	a := &Devices{Manager: m, Hardware: hw, c: Config{Pod: wanted}}
	show := func(all bool) (out []string) {
		t.Helper()
		list, err := a.Show(all)
		must(err)
		for _, d := range list {
			out = append(out, strings.Join([]string{d.Resource, d.ID, strings.Join(d.Nodes, ","), string(d.State), strings.Join(d.Users, ",")}, " "))
		}
		return out
	}
	want := []string{
		"islet.dev/pty dev-pts-3 /dev/pts/3 used default/p/c",
		"islet.dev/disk  /dev/diska kept ",
		"example.com/thing a  unhealthy ",
		"example.com/thing b  free ",
	}
	if got := show(false); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := show(true); len(got) <= len(want) || !slices.Equal(got[:len(want)], want) ||
		!strings.HasSuffix(got[len(want)], " "+string(api.DeviceNone)+" ") {
		t.Errorf("with this machine's devices: %q", got)
	}
	must(os.Remove(root + "/dev/pts/3"))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- hw.Run(ctx) }()
	<-changed // Run reads the devices when it starts
	stop()
	must(<-done)
	if got := show(false); got[0] != "islet.dev/pty dev-pts-3  away default/p/c" {
		t.Errorf("%q", got)
	}
	none := &Devices{Manager: devicemanager.New(devicemanager.Config{Store: s, Log: log}), c: Config{Pod: wanted}}
	if list, err := none.Show(false); err != nil || list == nil || len(list) != 0 {
		t.Errorf("a node without devices: %v, %v", list, err)
	}
}

type nothing struct{}

func (nothing) Allocate(context.Context, devicemanager.Request) (devicemanager.Allocation, error) {
	return devicemanager.Allocation{}, nil
}
