package storage

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// growing is a driver that can make file systems grow.
type growing struct{ grown chan string }

func (growing) Plugin() string                           { return "kubernetes.io/csi" }
func (growing) Serves(s *v1.PersistentVolumeSource) bool { return s.CSI != nil }
func (growing) Publish(context.Context, Volume, string, Use) error {
	return nil
}
func (growing) Unpublish(context.Context, Volume, types.UID, string) error { return nil }
func (g growing) Expand(_ context.Context, _ Volume, _, published string, to v1.ResourceList) error {
	g.grown <- published + " " + to.Storage().String()
	return nil
}

// adopting is one that takes up what was mounted before.
type adopting struct {
	growing
	err     error
	adopted []string
}

func (a *adopting) Adopt(_ Volume, _ string, u Use) {
	a.adopted = append(a.adopted, u.Path+" "+u.Volume)
}

func (a *adopting) Expand(ctx context.Context, v Volume, staged, published string, to v1.ResourceList) error {
	return errors.Join(a.growing.Expand(ctx, v, staged, published, to), a.err)
}

type resizable struct {
	objects
	told chan string
}

func (r *resizable) Resized(_ context.Context, c *v1.PersistentVolumeClaim, to resource.Quantity) error {
	c = c.DeepCopy()
	c.Status.Capacity = v1.ResourceList{v1.ResourceStorage: to}
	r.claims[c.Name] = c
	r.told <- c.Name + " " + to.String()
	return nil
}

// A volume that has grown grows here when a pod starts, and while one runs, once each; the
// API server learns of it.
func TestExpansion(t *testing.T) {
	root, s := t.TempDir(), openStore(t, t.TempDir())
	defer s.Close()
	o := &resizable{told: make(chan string, 1)}
	g := &adopting{growing: growing{make(chan string, 1)}}
	c, pv := o.bound("c", v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}})
	size := func(s string) v1.ResourceList { return v1.ResourceList{v1.ResourceStorage: resource.MustParse(s)} }
	c.Status.Capacity, pv.Spec.Capacity = size("1Gi"), size("2Gi")
	k := keeper(t, root, s, o, g)
	events := make(chan string, 9)
	k.cfg.Node, k.cfg.Event = "n", func(_ *v1.Pod, kind, reason, message string) { events <- kind + " " + reason + ": " + message }
	p := podWith("p", "c")
	path, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
	must(t, err)
	if got, told := <-g.grown, <-o.told; got != path+" 2Gi" || told != "c 2Gi" {
		t.Errorf("%q, told %q", got, told)
	}
	must(t, k.Refresh(p, &p.Spec.Volumes[0], "")) // nothing has changed
	pv = pv.DeepCopy()
	pv.Spec.Capacity = size("3Gi")
	o.volumes[pv.Name] = pv
	must(t, k.Refresh(p, &p.Spec.Volumes[0], ""))
	if got, told := <-g.grown, <-o.told; got != path+" 3Gi" || told != "c 3Gi" {
		t.Errorf("%q, told %q", got, told)
	}
	for range 2 {
		if got := <-events; got != `Normal FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume "pv-c" n` {
			t.Error(got)
		}
	}

	// Another run of the agent takes up what is mounted, and lets it grow.
	must(t, os.MkdirAll(path, 0o755))
	must(t, syscall.Mount("none", path, "tmpfs", 0, ""))
	defer func() { must(t, syscall.Unmount(path, 0)) }()
	k = keeper(t, root, s, o, g)
	k.cfg.Event = func(_ *v1.Pod, kind, reason, message string) { events <- kind + " " + reason + ": " + message }
	k.Adopt([]*v1.Pod{p, podWith("other", "c"), podWith("none", "unknown")})
	if len(g.adopted) != 1 || g.adopted[0] != path+" c" {
		t.Error(g.adopted)
	}
	pv = pv.DeepCopy()
	pv.Spec.Capacity = size("4Gi")
	o.volumes[pv.Name] = pv
	g.err = errors.New("no room")
	must(t, k.Refresh(p, &p.Spec.Volumes[0], ""))
	<-g.grown
	if got := <-events; got != `Warning VolumeResizeFailed: MountVolume.NodeExpandVolume failed for volume "pv-c" : no room` {
		t.Error(got)
	}
	must(t, k.TearDown(t.Context(), p.UID))
}
