package podvolumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/podtest"
	"github.com/islet-edge/islet/runtime/mounts"
	"github.com/islet-edge/islet/runtime/mounts/mountstest"
)

// TestMain runs the tests in a separate mount namespace.
func TestMain(m *testing.M) {
	os.Exit(mountstest.Main(m.Run))
}

func volumes(t *testing.T) *Volumes {
	t.Helper()
	v, err := New(Config{Root: t.TempDir(), Hostname: func(p *v1.Pod) (string, string) { return p.Name, p.Spec.Subdomain }})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func podWith(vols ...v1.Volume) *v1.Pod {
	return podtest.New("web", podtest.UID("u1"), podtest.Volumes(vols...))
}

func emptyDirVolume(name string, medium v1.StorageMedium) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: medium}}}
}

func host(name, path string, kind v1.HostPathType) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path, Type: &kind}}}
}

// mountsOf prepares the pod and returns the mounts of a container with the given VolumeMounts.
func mountsOf(t *testing.T, v *Volumes, p *v1.Pod, mounts ...v1.VolumeMount) ([]*api.Mount, error) {
	t.Helper()
	return mountsWithin(t.Context(), v, p, mounts...)
}

func mountsWithin(ctx context.Context, v *Volumes, p *v1.Pod, mounts ...v1.VolumeMount) ([]*api.Mount, error) {
	if err := v.Prepare(ctx, p); err != nil {
		return nil, err
	}
	ctr := &v1.Container{Name: "c", VolumeMounts: mounts}
	out := &api.ContainerConfig{Metadata: &api.ContainerMetadata{Name: "c"}}
	err := v.Container(ctx, p, ctr, out)
	return out.Mounts, err
}

func requireGone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("%s was not removed (%v)", path, err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestEmptyDir(t *testing.T) {
	v, gid := volumes(t), int64(os.Getgid())
	p := podWith(emptyDirVolume("data", ""))
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &gid}
	unfinished := filepath.Join(v.podDir("u1"), "volumes/kubernetes.io~empty-dir/data.new")
	if err := os.MkdirAll(unfinished, 0o750); err != nil { // the agent was killed while it was creating the volume
		t.Fatal(err)
	}
	mounts, err := mountsOf(t, v, p, v1.VolumeMount{Name: "data", MountPath: "/data", ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(v.podDir("u1"), "volumes/kubernetes.io~empty-dir/data")
	if len(mounts) != 1 || mounts[0].HostPath != dir || mounts[0].ContainerPath != "/data" || !mounts[0].Readonly ||
		!mounts[0].SelinuxRelabel {
		t.Errorf("mounts %v", mounts)
	}
	if fi, err := os.Stat(dir); err != nil || fi.Mode() != fs.ModeDir|fs.ModeSetgid|0o777 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	if fi, err := os.Stat(v.podDir("u1")); err != nil || fi.Mode().Perm() != 0o750 {
		t.Errorf("mode of the pod's directory %v, %v", fi.Mode(), err)
	}
	write(t, filepath.Join(dir, "kept"), "x")
	if _, err := mountsOf(t, v, p); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "kept")); err != nil {
		t.Error(err)
	}
	if err := v.Release(t.Context(), "u1"); err != nil {
		t.Fatal(err)
	}
	requireGone(t, v.podDir("u1"))
}

func TestEmptyDirInMemory(t *testing.T) {
	v := volumes(t)
	limit := resource.MustParse("1Mi")
	vol := emptyDirVolume("mem", v1.StorageMediumMemory)
	vol.EmptyDir.SizeLimit = &limit
	p := podWith(vol)
	for range 2 {
		if _, err := mountsOf(t, v, p); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(v.podDir("u1"), "volumes/kubernetes.io~empty-dir/mem")
	if points, err := mounts.ListBelow(v.podDir("u1")); err != nil || !slices.Equal(points, []string{dir}) {
		t.Errorf("mounts %v, %v", points, err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Type != unix.TMPFS_MAGIC || int64(st.Blocks)*st.Bsize != 1<<20 {
		t.Errorf("%+v, %v", st, err)
	}
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o777 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	if err := v.Release(t.Context(), "u1"); err != nil {
		t.Fatal(err)
	}
	requireGone(t, v.podDir("u1"))
}

func TestHostPath(t *testing.T) {
	d := t.TempDir()
	write(t, d+"/file", "x")
	l, err := net.Listen("unix", d+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, tt := range []struct {
		path string
		kind v1.HostPathType
		ok   bool
	}{
		{d, v1.HostPathUnset, true},
		{d + "/made", v1.HostPathUnset, true},
		{d, v1.HostPathDirectory, true},
		{d + "/none", v1.HostPathDirectory, false},
		{d + "/file", v1.HostPathDirectory, false},
		{d + "/a/b", v1.HostPathDirectoryOrCreate, true},
		{d + "/file", v1.HostPathFile, true},
		{d, v1.HostPathFile, false},
		{d + "/new", v1.HostPathFileOrCreate, true},
		{d + "/none/new", v1.HostPathFileOrCreate, false},
		{d + "/socket", v1.HostPathSocket, true},
		{d + "/file", v1.HostPathSocket, false},
		{"/dev/null", v1.HostPathCharDev, true},
		{d + "/file", v1.HostPathCharDev, false},
		{"/dev/null", v1.HostPathBlockDev, false},
	} {
		mounts, err := mountsOf(t, volumes(t), podWith(host("h", tt.path, tt.kind)), v1.VolumeMount{Name: "h", MountPath: "/h"})
		if (err == nil) != tt.ok {
			t.Errorf("%s as %q: %v", tt.path, tt.kind, err)
		}
		if err == nil && (mounts[0].HostPath != tt.path || mounts[0].SelinuxRelabel) {
			t.Errorf("%s: %v", tt.path, mounts)
		}
	}
}

// TestSubPathMode checks that a new subPath has the same mode as its volume, including the setgid bit and the sticky bit.
func TestSubPathMode(t *testing.T) {
	v := volumes(t)
	p, group := podWith(emptyDirVolume("data", "Memory")), int64(123)
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	mounts, err := mountsOf(t, v, p, v1.VolumeMount{Name: "data", MountPath: "/d", SubPath: "sub"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Release(context.Background(), "u1") })
	volume, err1 := os.Stat(filepath.Join(v.podDir("u1"), "volumes/kubernetes.io~empty-dir/data"))
	sub, err2 := os.Stat(mounts[0].HostPath)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if want := fs.ModeDir | fs.ModeSetgid | fs.ModeSticky | 0o777; volume.Mode() != want || sub.Mode() != want {
		t.Errorf("the volume %v, its subPath %v, want %v", volume.Mode(), sub.Mode(), want)
	}
	if st := sub.Sys().(*syscall.Stat_t); st.Gid != 123 {
		t.Errorf("group %d", st.Gid)
	}
}

// TestSubPath checks that a subPath cannot lead out of the volume, even if a container has created links.
func TestSubPath(t *testing.T) {
	v, outside := volumes(t), t.TempDir()
	write(t, outside+"/secret", "s")
	p := podWith(emptyDirVolume("data", ""))
	if _, err := mountsOf(t, v, p); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(v.podDir("u1"), "volumes/kubernetes.io~empty-dir/data")
	write(t, dir+"/file", "f")
	for link, to := range map[string]string{"abs": outside, "up": "../../../../../../" + outside, "in": "file"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		sub string
		ok  bool
	}{
		{"file", true}, {"in", true}, {"new/deep", true},
		{"abs", false}, {"abs/secret", false}, {"abs/made", false}, {"up", false}, {"../x", false}, {"/etc", false},
	} {
		mounts, err := mountsOf(t, v, p, v1.VolumeMount{Name: "data", MountPath: "/d", SubPath: tt.sub})
		if (err == nil) != tt.ok {
			t.Errorf("subPath %s: %v, %v", tt.sub, mounts, err)
		}
	}
	requireGone(t, outside+"/made")
	mounts, err := mountsOf(t, v, p, v1.VolumeMount{Name: "data", MountPath: "/d", SubPath: "new"})
	if err != nil {
		t.Fatal(err)
	}
	// The container replaces the directory with a link before the directory is mounted.
	if err := os.Rename(dir+"/new", dir+"/old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, dir+"/new"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(mounts[0].HostPath + "/deep"); err != nil {
		t.Errorf("the subPath leads elsewhere now: %v", err)
	}
	if err := v.Release(t.Context(), "u1"); err != nil {
		t.Fatal(err)
	}
	requireGone(t, v.podDir("u1"))
	if _, err := os.Stat(outside + "/secret"); err != nil {
		t.Error(err)
	}
}

// TestReleaseKeepsTheHost checks that the removal of a pod unmounts its host directories. It does not delete files in them.
func TestReleaseKeepsTheHost(t *testing.T) {
	v, d := volumes(t), t.TempDir()
	if err := os.MkdirAll(d+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, d+"/sub/precious", "p")
	p := podWith(host("h", d, v1.HostPathDirectory))
	for range 2 { // the container has two attempts
		mounts, err := mountsOf(t, v, p, v1.VolumeMount{Name: "h", MountPath: "/h", SubPath: "sub"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(mounts[0].HostPath + "/precious"); err != nil {
			t.Fatal(err)
		}
	}
	if points, err := mounts.ListBelow(v.podDir("u1")); err != nil || len(points) != 1 {
		t.Errorf("mounts %v, %v", points, err)
	}
	keep := func(uid types.UID) bool { return uid != "u1" }
	if err := v.Sweep(t.Context(), keep); err != nil {
		t.Fatal(err)
	}
	requireGone(t, v.podDir("u1"))
	if _, err := os.Stat(d + "/sub/precious"); err != nil {
		t.Error(err)
	}
}

// TestContainersTogether checks that containers of a pod get the same volumes and the same /etc/hosts if they start at the same time.
func TestContainersTogether(t *testing.T) {
	v := volumes(t)
	for i := range 50 {
		p := podWith(emptyDirVolume("data", ""))
		p.UID = types.UID(fmt.Sprint("u", i))
		p.Status.PodIPs = []v1.PodIP{{IP: "10.1.2.3"}}
		if err := v.Prepare(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		var starts sync.WaitGroup
		var hosts [4]os.FileInfo
		for n := range hosts {
			starts.Go(func() {
				ctr := &v1.Container{Name: fmt.Sprint("c", n), VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data"}}}
				out := &api.ContainerConfig{Metadata: &api.ContainerMetadata{Name: ctr.Name}}
				if err := v.Container(t.Context(), p, ctr, out); err != nil || len(out.Mounts) != 2 {
					t.Errorf("container %s: %v, %v", ctr.Name, out.Mounts, err)
					return
				}
				var err error
				if hosts[n], err = os.Stat(filepath.Join(v.podDir(p.UID), "etc-hosts")); err != nil {
					t.Error(err)
				}
			})
		}
		starts.Wait()
		for _, fi := range hosts[1:] {
			if !os.SameFile(hosts[0], fi) {
				t.Fatal("two containers of a pod have each an /etc/hosts of its own")
			}
		}
	}
}

func TestTerminationLog(t *testing.T) {
	v, p := volumes(t), podWith()
	if err := v.Prepare(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	var last string
	for attempt := range uint32(12) {
		out := &api.ContainerConfig{Metadata: &api.ContainerMetadata{Name: "c", Attempt: attempt}}
		if err := v.Container(t.Context(), p, &v1.Container{Name: "c", TerminationMessagePath: "/dev/termination-log"}, out); err != nil {
			t.Fatal(err)
		}
		last = out.Mounts[0].HostPath
	}
	for path, want := range map[string]string{"dev/log": "/dev/log", "./log/": "/log", "//dev//log": "/dev/log"} {
		out := &api.ContainerConfig{Metadata: &api.ContainerMetadata{Name: "c", Attempt: 11}}
		err := v.Container(t.Context(), p, &v1.Container{Name: "c", TerminationMessagePath: path}, out)
		if err != nil || out.Mounts[0].ContainerPath != want {
			t.Errorf("the log is mounted at %q instead of %q, %v", out.Mounts[0].ContainerPath, want, err)
		}
	}
	if fi, err := os.Stat(last); err != nil || fi.Mode().Perm() != 0o666 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(last)); err != nil || len(left) != keptAttempts+1 {
		t.Errorf("%d logs are kept, %v", len(left), err)
	}
}

func TestRefuses(t *testing.T) {
	v := volumes(t)
	nfs := v1.Volume{Name: "s", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "x"}}}
	if _, err := mountsOf(t, v, podWith(nfs)); err == nil || !strings.Contains(err.Error(), `volume "s" is of a type`) {
		t.Errorf("%v", err)
	}
	if _, err := mountsOf(t, v, podWith(), v1.VolumeMount{Name: "none", MountPath: "/x"}); err == nil {
		t.Error("mounted an unknown volume")
	}
	enabled := v1.RecursiveReadOnlyEnabled
	m := v1.VolumeMount{Name: "data", MountPath: "/x", ReadOnly: true, RecursiveReadOnly: &enabled}
	v.cfg.ReadOnlyTrees = func(*v1.Pod) bool { return true }
	if mounts, err := mountsOf(t, v, podWith(emptyDirVolume("data", "")), m); err != nil || !mounts[0].RecursiveReadOnly {
		t.Errorf("%v, %v", mounts, err)
	}
	v.cfg.ReadOnlyTrees = nil
	if _, err := mountsOf(t, v, podWith(emptyDirVolume("data", "")), m); err == nil {
		t.Error("recursively read-only, which the runtime cannot do")
	}
	possible := v1.RecursiveReadOnlyIfPossible
	m.RecursiveReadOnly = &possible
	mounts, err := mountsOf(t, v, podWith(emptyDirVolume("data", "")), m)
	if err != nil || mounts[0].RecursiveReadOnly || !mounts[0].Readonly {
		t.Errorf("IfPossible without support: %v, %v", mounts, err)
	}
}

// TestImageMount checks that the runtime gets the image and the subPath of an image volume. It gets no host path.
func TestImageMount(t *testing.T) {
	v, err := New(Config{Root: t.TempDir(), Hostname: func(*v1.Pod) (string, string) { return "h", "" }})
	if err != nil {
		t.Fatal(err)
	}
	model := v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "model:1"}}
	pod := podtest.New("p", podtest.Volumes(v1.Volume{Name: "data", VolumeSource: model}))
	ctr := &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "data", SubPath: "sub/dir"}}}
	if err := v.Prepare(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	var out api.ContainerConfig
	if err := v.Container(t.Context(), pod, ctr, &out); err != nil {
		t.Fatal(err)
	}
	m := out.Mounts[0]
	if m.ContainerPath != "/data" || m.HostPath != "" || !m.Readonly || m.GetImage().GetImage() != "model:1" ||
		m.ImageSubPath != "sub/dir" || m.SelinuxRelabel {
		t.Errorf("%v", m)
	}
	if err := v.Release(t.Context(), pod.UID); err != nil {
		t.Error(err)
	}
}

// TestBindMountOptions checks that the runtime gets the options of a mount, both with and without a subPath.
func TestBindMountOptions(t *testing.T) {
	v, want := volumes(t), []string{"noexec", "nosuid"}
	t.Cleanup(func() { _ = v.Release(context.Background(), "u1") })
	got, err := mountsOf(t, v, podWith(emptyDirVolume("data", "")), v1.VolumeMount{Name: "data", MountPath: "/a", BindMountOptions: want},
		v1.VolumeMount{Name: "data", MountPath: "/b", SubPath: "sub", BindMountOptions: want}, v1.VolumeMount{Name: "data", MountPath: "/c"})
	if err != nil || !slices.Equal(got[0].MountOptions, want) || !slices.Equal(got[1].MountOptions, want) || len(got[2].MountOptions) > 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestHostileUID(t *testing.T) {
	v := volumes(t)
	for _, uid := range []types.UID{"", ".", "..", "../x", "a/b"} {
		if err := v.Release(t.Context(), uid); err == nil {
			t.Errorf("released %q", uid)
		}
	}
}
