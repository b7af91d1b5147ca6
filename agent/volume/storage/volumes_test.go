package storage_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/volume/podvolumes"
	"github.com/islet-edge/islet/agent/volume/storage"
	"github.com/islet-edge/islet/edge/store"
)

// A stubborn is a driver that mounts nothing. The test can make its unmount fail or hang.
type stubborn struct {
	why  atomic.Pointer[error]
	hang atomic.Bool
}

func (*stubborn) Plugin() string                           { return "kubernetes.io/csi" }
func (*stubborn) Serves(s *v1.PersistentVolumeSource) bool { return s.CSI != nil }
func (*stubborn) Publish(_ context.Context, _ storage.Volume, _ string, u storage.Use) error {
	return os.MkdirAll(u.Path, 0o755)
}

func (s *stubborn) Unpublish(ctx context.Context, _ storage.Volume, _ types.UID, path string) error {
	if s.hang.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := s.why.Load(); err != nil {
		return *err
	}
	return os.Remove(path)
}

// A stager is a driver that also stages volumes. It does not unstage them while refuses is set.
type stager struct {
	stubborn
	refuses atomic.Bool
	refused atomic.Int32 // how often
}

func (*stager) StagePath(storage.Volume) string                                  { return "/staged" }
func (*stager) Stage(context.Context, storage.Volume, string, storage.Use) error { return nil }
func (s *stager) Unstage(ctx context.Context, _ storage.Volume, _ string) error {
	if s.hang.Load() {
		<-ctx.Done()
	}
	if s.refuses.Load() {
		s.refused.Add(1)
		return errors.New("the volume is busy")
	}
	return nil
}

type node struct {
	*podvolumes.Volumes
	keeper *storage.Mounter
	driver *stubborn
	root   string
}

// start starts an agent. The ledger survives restarts of the agent.
func start(t *testing.T, root string, s *store.Store, o storage.Objects) *node {
	t.Helper()
	n := &node{driver: &stubborn{}, root: root}
	var err error
	n.keeper, err = storage.New(t.Context(), storage.Config{Root: root, Drivers: []storage.Driver{n.driver}, Ledger: s, Objects: o})
	if err != nil {
		t.Fatal(err)
	}
	n.Volumes, err = podvolumes.New(podvolumes.Config{Root: root, Hostname: func(*v1.Pod) (string, string) { return "h", "" }, Kinds: []podvolumes.Kind{n.keeper}})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func mountsBelow(t *testing.T, dir string) (all []string) {
	t.Helper()
	found, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range found {
		all = append(all, m.Mountpoint)
	}
	return all
}

// TestPodWithClaim checks that a container gets the volume of a claim and a subPath of the volume. Both are unmounted when the pod ends or
// is removed. A restarted agent, which knows only the ledger, unmounts them in Sweep. The data is kept.
func TestPodWithClaim(t *testing.T) {
	root, disk := t.TempDir(), t.TempDir()
	s := storage.OpenStore(t, t.TempDir())
	defer s.Close()
	o := storage.Known("data", v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: disk}})
	pod := storage.PodWith("p", "data")
	ctr := &pod.Spec.Containers[0]
	ctr.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "data", MountPath: "/sub", SubPath: "a/b", ReadOnly: true}}
	prepare := func(n *node) *api.ContainerConfig {
		t.Helper()
		if err := n.Prepare(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		out := &api.ContainerConfig{Metadata: &api.ContainerMetadata{}}
		if err := n.Container(t.Context(), pod, ctr, out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	n := start(t, root, s, o)
	out := prepare(n)
	want := filepath.Join(root, "pods/uid-p/volumes/kubernetes.io~local-volume/pv-data")
	if m := out.Mounts[0]; m.HostPath != want || m.Readonly || !m.SelinuxRelabel {
		t.Errorf("%+v", m)
	}
	if m := out.Mounts[1]; !m.Readonly || len(mountsBelow(t, root)) != 2 {
		t.Errorf("%+v, %q", m, mountsBelow(t, root))
	}
	if err := os.WriteFile(filepath.Join(out.Mounts[0].HostPath, "a/b/file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.Ended(t.Context(), pod); err != nil || len(mountsBelow(t, root)) != 0 {
		t.Errorf("%v, mounted: %q", err, mountsBelow(t, root))
	}
	prepare(n)
	if err := n.Release(t.Context(), pod.UID); err != nil || len(mountsBelow(t, root)) != 0 {
		t.Errorf("%v, mounted: %q", err, mountsBelow(t, root))
	}
	prepare(n)
	n = start(t, root, s, nil)
	if err := n.Sweep(t.Context(), func(types.UID) bool { return true }); err != nil || len(mountsBelow(t, root)) != 2 {
		t.Errorf("%v, mounted: %q", err, mountsBelow(t, root))
	}
	if err := n.Sweep(t.Context(), func(types.UID) bool { return false }); err != nil || len(mountsBelow(t, root)) != 0 {
		t.Errorf("%v, mounted: %q", err, mountsBelow(t, root))
	}
	if _, err := os.Stat(filepath.Join(root, "pods/uid-p")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if b, err := os.ReadFile(disk + "/a/b/file"); err != nil || string(b) != "x" {
		t.Errorf("%q: %v", b, err)
	}
}

// TestNothingIsRemovedBeforeTheDriverHasUndone checks that no file of a pod is removed before the driver has unmounted the pod's volume. If
// the driver hangs, the caller waits until its context ends.
func TestNothingIsRemovedBeforeTheDriverHasUndone(t *testing.T) {
	root := t.TempDir()
	s := storage.OpenStore(t, t.TempDir())
	defer s.Close()
	o := storage.Known("data", v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}})
	pod := storage.PodWith("p", "data")
	n := start(t, root, s, o)
	if err := n.Prepare(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(root, "pods/uid-p/volumes/kubernetes.io~csi/pv-data/file")
	if err := os.WriteFile(data, []byte("x"), 0o600); err != nil { // a file such as on a server
		t.Fatal(err)
	}
	why := errors.New("the server is away")
	n.driver.why.Store(&why)
	for _, end := range []func(context.Context) error{
		func(ctx context.Context) error { return n.Ended(ctx, pod) }, func(ctx context.Context) error { return n.Release(ctx, pod.UID) },
	} {
		if err := end(t.Context()); !errors.Is(err, why) || !strings.Contains(err.Error(), `UnmountVolume.TearDown failed for volume "pv-data"`) {
			t.Error(err)
		}
		if _, err := os.Stat(data); err != nil {
			t.Fatal("data was removed: ", err)
		}
	}
	n.driver.why.Store(nil)
	n.driver.hang.Store(true)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Release(ctx, pod.UID) }()
	other := storage.PodWith("other")
	if err := errors.Join(n.Prepare(t.Context(), other), n.Release(t.Context(), other.UID)); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	n.driver.hang.Store(false)
	if err := os.Remove(data); err != nil {
		t.Fatal(err)
	}
	if err := n.Release(t.Context(), pod.UID); err != nil || n.keeper.HasPod(pod.UID) {
		t.Error(err)
	}
}

// startStager starts an agent with a driver that stages volumes, and a pod with such a volume.
func startStager(t *testing.T, root string, s *store.Store) (*podvolumes.Volumes, *storage.Mounter, *stager, *v1.Pod) {
	t.Helper()
	o := storage.Known("data", v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}})
	d := &stager{}
	k, err := storage.New(t.Context(), storage.Config{Root: root, Drivers: []storage.Driver{d}, Ledger: s, Objects: o})
	if err != nil {
		t.Fatal(err)
	}
	hostname := func(*v1.Pod) (string, string) { return "h", "" }
	n, err := podvolumes.New(podvolumes.Config{Root: root, Hostname: hostname, Kinds: []podvolumes.Kind{k}})
	if err != nil {
		t.Fatal(err)
	}
	return n, k, d, storage.PodWith("p", "data")
}

// TestRefusedUnstage checks that a volume which could not be unstaged when its pod ended is unstaged later: soon after the driver can
// unstage it, although no other pod ends; and at once if any pod ends or a driver becomes available.
func TestRefusedUnstage(t *testing.T) {
	dir := t.TempDir()
	for name, event := range map[string]func(*podvolumes.Volumes, *storage.Mounter) error{
		"":                 nil,
		"another pod ends": func(n *podvolumes.Volumes, _ *storage.Mounter) error { return n.Release(t.Context(), "uid-other") },
		"a driver":         func(_ *podvolumes.Volumes, k *storage.Mounter) error { k.RetryUnstage(); return nil },
	} {
		root := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			s := storage.OpenStore(t, dir)
			defer s.Close()
			n, k, d, pod := startStager(t, root, s)
			d.refuses.Store(true)
			if err := n.Prepare(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			if err := n.Ended(t.Context(), pod); err == nil || len(k.InUse()) != 1 {
				t.Errorf("%s: %v, in use: %q", name, err, k.InUse())
			}
			if err := n.Release(t.Context(), pod.UID); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			time.Sleep(time.Hour) // in the bubble
			if d.refused.Load() < 10 || len(k.InUse()) != 1 {
				t.Errorf("%s: refused %d times, in use: %q", name, d.refused.Load(), k.InUse())
			}
			d.refuses.Store(false)
			if event == nil {
				time.Sleep(2 * time.Minute) // in the bubble
			} else if err := event(n, k); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			synctest.Wait()
			if len(k.InUse()) != 0 {
				t.Errorf("%s: in use: %q", name, k.InUse())
			}
		})
	}
}

// TestHangingUnstage checks that a driver which hangs while it unstages a volume delays no other pod, and that the volume is unstaged after
// the driver answers again.
func TestHangingUnstage(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := storage.OpenStore(t, dir)
		defer s.Close()
		n, k, d, pod := startStager(t, root, s)
		d.refuses.Store(true)
		if err := n.Prepare(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if err := n.Ended(t.Context(), pod); err == nil {
			t.Error("the volume was unstaged")
		}
		d.hang.Store(true)
		for range 3 {
			began := time.Now()
			if err := n.Release(t.Context(), "uid-other"); err != nil || time.Since(began) > 0 {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
			synctest.Wait()
		}
		d.hang.Store(false)
		d.refuses.Store(false)
		time.Sleep(time.Hour) // in the bubble
		if len(k.InUse()) != 0 {
			t.Errorf("in use: %q", k.InUse())
		}
	})
}

// TestPodWithoutClaims checks that nothing is stored for a pod that has no volumes of drivers.
func TestPodWithoutClaims(t *testing.T) {
	s := storage.OpenStore(t, t.TempDir())
	defer s.Close()
	n := start(t, t.TempDir(), s, nil)
	pod := storage.PodWith("p")
	if err := errors.Join(n.Prepare(t.Context(), pod), n.Ended(t.Context(), pod), n.Release(t.Context(), pod.UID)); err != nil {
		t.Error(err)
	}
	if rows, err := s.Volumes(t.Context()); err != nil || len(rows) != 0 || n.keeper.HasPod(pod.UID) {
		t.Errorf("%v: %v", rows, err)
	}
	claim := storage.PodWith("q", "c")
	if err := n.Prepare(t.Context(), claim); err == nil || !strings.Contains(err.Error(), "this node has no API server") {
		t.Error(err)
	}
}
