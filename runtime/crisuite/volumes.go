package crisuite

import (
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// testImageMounts checks that an image, or a directory of an image, is mounted read-only and
// noexec.
func testImageMounts(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	volume := func(at, sub string) *api.Mount {
		return &api.Mount{ContainerPath: at, Image: &api.ImageSpec{Image: ImageRef}, ImageSubPath: sub}
	}
	c := b.containerConfig("reads", "read", "/vol/second", "read", "/sub/passwd")
	c.Mounts = []*api.Mount{volume("/vol", ""), volume("/sub", "etc")}
	id := b.create(pod, cfg, c)
	b.start(id)
	st := b.awaitEnd(id)
	if st.ExitCode != 0 || !strings.HasPrefix(b.readLog(c), "layer\nroot:x:0:0") || len(st.Mounts) != 2 ||
		st.Mounts[0].GetImage().GetImage() != ImageRef {
		t.Errorf("%v, logged %q", st, b.readLog(c))
	}
	c = b.containerConfig("writes", "put", "/vol/second", "x", "put", "/vol/new", "x")
	c.Mounts = []*api.Mount{volume("/vol", "")}
	if out, _ := b.runForOutput(pod, cfg, c); strings.Count(out, "read-only") != 2 {
		t.Errorf("a container wrote to an image: %q", out)
	}
	c = b.containerConfig("runs")
	c.Command = []string{"/vol/prog", "print", "it runs"}
	c.Mounts = []*api.Mount{volume("/vol", "")}
	id = b.create(pod, cfg, c)
	if _, err := b.Runtime.StartContainer(b.ctx, &api.StartContainerRequest{ContainerId: id}); err == nil {
		t.Error("a program in a volume was run")
	}
	for name, m := range map[string]*api.Mount{
		"missing sub path":   volume("/vol", "no/such"),
		"file as sub path":   volume("/vol", "second"),
		"outside":            volume("/vol", "../../../no"),
		"both":               {ContainerPath: "/vol", HostPath: "/tmp", Image: &api.ImageSpec{Image: ImageRef}},
		"neither":            {ContainerPath: "/vol"},
		"sub path only":      {ContainerPath: "/vol", HostPath: "/tmp", ImageSubPath: "etc"},
		"no name":            {ContainerPath: "/vol", Image: &api.ImageSpec{}},
		"rro, not read-only": {ContainerPath: "/vol", HostPath: "/tmp", RecursiveReadOnly: true},
		"rro with propagation": {ContainerPath: "/vol", HostPath: "/tmp", Readonly: true, RecursiveReadOnly: true,
			Propagation: api.MountPropagation_PROPAGATION_HOST_TO_CONTAINER},
	} {
		c := b.containerConfig("bad")
		c.Mounts = []*api.Mount{m}
		if err := b.tryCreate(pod, cfg, c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	c = b.containerConfig("absent")
	c.Mounts = []*api.Mount{{ContainerPath: "/vol", Image: &api.ImageSpec{Image: "islet.test/missing:1"}}}
	if err := b.tryCreate(pod, cfg, c); !errdefs.IsNotFound(err) {
		t.Errorf("a missing image: %v", err)
	}
}

// testReadonlyTrees checks recursive read-only mounts (KEP-3857), or that they are rejected if the
// runtime handler does not support them.
func testReadonlyTrees(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	dir := t.TempDir()
	below := dir + "/below"
	if err := unix.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("below", below, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(below, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	can := false
	for _, h := range must(b.Runtime.Status(b.ctx, &api.StatusRequest{}))(b).RuntimeHandlers {
		can = can || h.Name == "" && h.GetFeatures().GetRecursiveReadOnlyMounts()
	}
	for name, recursive := range map[string]bool{"plain": false, "recursive": true} {
		c := b.containerConfig(name, "put", "/data/x", "x", "put", "/data/below/x", "x")
		c.Mounts = []*api.Mount{{ContainerPath: "/data", HostPath: dir, Readonly: true, RecursiveReadOnly: recursive}}
		if recursive && !can {
			if err := b.tryCreate(pod, cfg, c); err == nil {
				t.Error("accepted a feature that the handler does not report")
			}
			continue
		}
		want := map[bool]int{false: 1, true: 2}[recursive]
		if out, _ := b.runForOutput(pod, cfg, c); strings.Count(out, "read-only") != want {
			t.Errorf("%s: %q", name, out)
		}
	}
}

// testMountOptions checks that a mount has the options that the container requests for it, and that no other mount
// has these options. It is skipped if the runtime does not report this feature (KEP-5855).
func testMountOptions(t *testing.T, b *bench) {
	if !must(b.Runtime.Status(b.ctx, &api.StatusRequest{}))(b).GetFeatures().GetMountOptions() {
		t.Skip("the runtime does not report mount options")
	}
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	dir := t.TempDir()
	c := b.containerConfig("options", "read", "/proc/self/mountinfo")
	c.Mounts = []*api.Mount{
		{ContainerPath: "/hard", HostPath: dir, MountOptions: []string{"noexec", "nodev", "nosuid"}},
		{ContainerPath: "/soft", HostPath: dir},
	}
	out, _ := b.runForOutput(pod, cfg, c)
	options := map[string][]string{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 5 {
			options[f[4]] = strings.Split(f[5], ",")
		}
	}
	for _, o := range c.Mounts[0].MountOptions {
		if !slices.Contains(options["/hard"], o) || len(options["/soft"]) == 0 {
			t.Errorf("no option %s: %q", o, out)
		}
	}
	if slices.Contains(options["/soft"], "noexec") {
		t.Errorf("another mount has options: %q", options["/soft"])
	}
	c = b.containerConfig("unknown")
	c.Mounts = []*api.Mount{{ContainerPath: "/vol", HostPath: dir, MountOptions: []string{"noexec", "exec"}}}
	if err := b.tryCreate(pod, cfg, c); err == nil {
		t.Error("an option that undoes another one: accepted")
	}
}
