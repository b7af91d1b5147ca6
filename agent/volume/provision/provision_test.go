package provision_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/volume/objects"
	"github.com/islet-edge/islet/agent/volume/provision"
	"github.com/islet-edge/islet/edge/local"
	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/podtest"
	"github.com/islet-edge/islet/runtime/mounts/mountstest"
)

// TestMain runs the tests in a separate mount namespace.
func TestMain(m *testing.M) { os.Exit(mountstest.Main(m.Run)) }

func node(t *testing.T) (*provision.Claims, *local.Objects) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	s, err := store.Open(context.Background(), filepath.Join(t.TempDir(), "islet.db"), log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	l, err := local.Open(context.Background(), local.Config{Store: s, Changed: func(types.UID) {}, Log: log}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return provision.New(config(t, l)), l
}

func config(t *testing.T, l *local.Objects) provision.Config {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	return provision.Config{Dir: filepath.Join(t.TempDir(), "claims"), Node: "edge", Local: l, Log: log}
}

func claimed(t *testing.T, l *local.Objects, name, size string) {
	t.Helper()
	set, err := manifest.Decode(fmt.Appendf(nil, "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: %s}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: %s}}}", name, size), manifest.Options{Source: "local"})
	if err == nil {
		_, err = l.Apply(t.Context(), set.Objects, false)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func podOf(source, claim string) *v1.Pod {
	p := podtest.New("p", podtest.Source(source), podtest.Claims(claim))
	p.Spec.Volumes[0].Name = "v"
	return p
}

// TestClaim checks that a claim in a manifest is bound to a directory. The directory stays after the deletion of the pod and the claim, and
// is removed when nothing uses it any more.
func TestClaim(t *testing.T) {
	c, l := node(t)
	pod := podOf("local", "data")
	l.Register(pod)
	if err := c.Prepare(t.Context(), pod); err != nil || len(c.List()) != 0 {
		t.Fatal("an unknown claim:", err, c.List())
	}
	if _, err := c.Claim(pod, "data"); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	claimed(t, l, "data", "1Gi")
	for range 2 {
		if err := c.Prepare(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.Claim(pod, "data")
	if err != nil || got.Status.Phase != v1.ClaimBound {
		t.Fatal(got, err)
	}
	pv, err := c.PersistentVolume(pod, got.Spec.VolumeName)
	if err != nil || pv.Spec.ClaimRef.UID != got.UID || pv.Spec.Local.Path != c.Path("default", "data") ||
		pv.Spec.Capacity.Storage().Value() != 1<<30 {
		t.Fatal(pv, err)
	}
	fi, err := os.Stat(pv.Spec.Local.Path)
	if err != nil || fi.Mode().Perm() != 0o777 {
		t.Error(fi, err)
	}
	if fi, err := os.Stat(filepath.Dir(pv.Spec.Local.Path)); err != nil || fi.Mode().Perm() != 0o700 {
		t.Error("other users can read the data:", fi, err)
	}
	kept := filepath.Join(pv.Spec.Local.Path, "kept")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove("default", "data"); !errors.Is(err, provision.ErrInUse) {
		t.Error("removed the directory of a claim in a manifest:", err)
	}
	if _, err := l.Delete(t.Context(), "PersistentVolumeClaim", "default", "data"); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove("default", "data"); !errors.Is(err, provision.ErrInUse) {
		t.Error("removed the directory of a pod's claim:", err)
	}
	if err := l.Release(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	if all := c.List(); len(all) != 1 || all[0].Claimed {
		t.Error(all)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error("the data went with the pod:", err)
	}
	if err := c.Remove("default", "data"); err != nil || len(c.List()) != 0 {
		t.Error(err, c.List())
	}
}

// TestOthersHaveNone checks that pods of the API server, of files and of URLs cannot use a local claim.
func TestOthersHaveNone(t *testing.T) {
	c, l := node(t)
	claimed(t, l, "data", "1Gi")
	for _, source := range []string{"api", "file", "http"} {
		pod := podOf(source, "data")
		l.Register(pod)
		if err := c.Prepare(t.Context(), pod); err != nil || len(c.List()) != 0 {
			t.Error(source, err, c.List())
		}
		if _, err := c.Claim(pod, "data"); !apierrors.IsNotFound(err) {
			t.Error(source, err)
		}
		if _, err := c.PersistentVolume(pod, "pvc-x"); !apierrors.IsNotFound(err) {
			t.Error(source, err)
		}
	}
}

// A slowDisk stands in for a disk on which the deletion of data takes long. removing receives the directory whose deletion has begun. The
// deletion waits until resume is closed.
type slowDisk struct {
	removing chan string
	resume   chan struct{}
}

func (slowDisk) Limit(string, int64) (bool, error) { return true, nil }
func (slowDisk) Usage(string) (int64, bool)        { return 0, true }
func (s slowDisk) RemoveLimit(dir string) error {
	s.removing <- dir
	<-s.resume
	return nil
}

// TestLongRemoval checks that the deletion of a claim's data delays no pod. A claim with the same name gets a new directory. If the agent
// ends meanwhile, the next one deletes the rest.
func TestLongRemoval(t *testing.T) {
	_, l := node(t)
	disk := slowDisk{make(chan string), make(chan struct{})}
	cfg := config(t, l)
	cfg.Quota = disk
	c := provision.New(cfg)
	claimed(t, l, "data", "1Gi")
	claimed(t, l, "other", "1Gi")
	pod, other := podOf("local", "data"), podOf("local", "other")
	prepare := func(p *v1.Pod) {
		t.Helper()
		if err := c.Prepare(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	prepare(pod)
	old := filepath.Join(c.Path("default", "data"), "old")
	if err := os.WriteFile(old, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Delete(t.Context(), "PersistentVolumeClaim", "default", "data"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Remove("default", "data") }()
	removing := <-disk.removing
	if _, err := os.Stat(filepath.Join(removing, "old")); err != nil || c.Exists("default", "data") || len(c.List()) != 0 {
		t.Error("the data is not moved away:", err, c.List())
	}
	c.Sweep(t.Context()) // does not delete the same data
	prepare(other)
	claimed(t, l, "data", "1Gi")
	prepare(pod)
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Error("the new claim has old data:", err)
	}
	if err := c.Remove("default", "data"); !errors.Is(err, provision.ErrInUse) {
		t.Error(err)
	}

	cfg.Quota = nil
	over, stop := context.WithCancel(t.Context())
	stop()
	provision.New(cfg).Sweep(over) // an agent that ends at once
	if _, err := os.Stat(filepath.Join(removing, "old")); err != nil {
		t.Error(err)
	}
	provision.New(cfg).Sweep(t.Context()) // the next agent
	if _, err := os.Stat(removing); !errors.Is(err, os.ErrNotExist) {
		t.Error("the next agent has not deleted the data:", err)
	}
	close(disk.resume)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(cfg.Dir, "*", "*")); err != nil || len(left) != 2 || len(c.List()) != 2 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// A failingDisk stands in for a disk on which the deletion of data fails: something is mounted in the data.
type failingDisk struct{ *testing.T }

func (failingDisk) Limit(string, int64) (bool, error) { return true, nil }
func (failingDisk) Usage(string) (int64, bool)        { return 0, true }
func (d failingDisk) RemoveLimit(dir string) error {
	if err := unix.Mount("tmpfs", filepath.Join(dir, "mounted"), "tmpfs", 0, ""); err != nil && !errors.Is(err, os.ErrNotExist) {
		d.Error(err)
	}
	return nil
}

// TestFailedRemoval checks that a user can repeat a removal that has failed.
func TestFailedRemoval(t *testing.T) {
	_, l := node(t)
	cfg := config(t, l)
	cfg.Quota = failingDisk{t}
	c := provision.New(cfg)
	claimed(t, l, "data", "1Gi")
	if err := c.Prepare(t.Context(), podOf("local", "data")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(c.Path("default", "data"), "mounted"), 0o700); err != nil {
		t.Fatal(err)
	}
	m := objects.Manifests{Local: l, Claims: c}
	remove := func(data bool) api.Deleted {
		return m.Delete(t.Context(), "PersistentVolumeClaim", "default", "data", data)
	}
	if d := remove(true); d.Error == "" || d.NotFound {
		t.Errorf("%+v", d)
	}
	if d := remove(false); !d.NotFound {
		t.Errorf("%+v", d)
	}
	if d := remove(true); d.Error == "" || d.NotFound { // the reason remains
		t.Errorf("%+v", d)
	}
	claimed(t, l, "data", "1Gi")
	if d := remove(true); d.Error != "" || d.Note == "" { // this claim has no data
		t.Errorf("%+v", d)
	}
	mounted, err := filepath.Glob(filepath.Join(cfg.Dir, "default", "*", "mounted"))
	if err != nil || len(mounted) != 1 {
		t.Fatal(mounted, err)
	}
	for unix.Unmount(mounted[0], 0) == nil { // one mount for each call
	}
	if err := os.Remove(mounted[0]); err != nil {
		t.Fatal(err)
	}
	if d := remove(true); d.Error != "" || d.Note != "" || d.NotFound {
		t.Errorf("%+v", d)
	}
	if d := remove(true); !d.NotFound {
		t.Errorf("%+v", d)
	}
	if left, err := os.ReadDir(cfg.Dir); err != nil || len(left) != 0 {
		t.Error(left, err)
	}
}

// TestRemovalOnFullDisk checks that data is removed from a file system that cannot contain more files.
func TestRemovalOnFullDisk(t *testing.T) {
	c, l := node(t)
	dir := filepath.Dir(filepath.Dir(c.Path("default", "data")))
	if err := errors.Join(os.Mkdir(dir, 0o700), unix.Mount("tmpfs", dir, "tmpfs", 0, "nr_inodes=16")); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, 0)
	claimed(t, l, "data", "1Gi")
	if err := c.Prepare(t.Context(), podOf("local", "data")); err != nil {
		t.Fatal(err)
	}
	var err error
	for i := 0; err == nil; i++ {
		err = os.Mkdir(filepath.Join(c.Path("default", "data"), strconv.Itoa(i)), 0o700)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if _, err := l.Delete(t.Context(), "PersistentVolumeClaim", "default", "data"); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove("default", "data"); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Error(left, err)
	}
}

// TestMountedDataIsKept checks that nothing of a claim's data is removed if something is mounted in it.
func TestMountedDataIsKept(t *testing.T) {
	c, l := node(t)
	claimed(t, l, "data", "1Gi")
	if err := c.Prepare(t.Context(), podOf("local", "data")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Delete(t.Context(), "PersistentVolumeClaim", "default", "data"); err != nil {
		t.Fatal(err)
	}
	kept, disk := filepath.Join(c.Path("default", "data"), "kept"), filepath.Join(c.Path("default", "data"), "disk")
	if err := errors.Join(os.WriteFile(kept, nil, 0o600), os.Mkdir(disk, 0o700), unix.Mount("tmpfs", disk, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove("default", "data"); err == nil {
		t.Error("the data was removed")
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
	if err := errors.Join(unix.Unmount(disk, 0), c.Remove("default", "data")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(c.Path("default", "data")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
