package storage

import (
	"context"
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
	g := growing{make(chan string, 1)}
	c, pv := o.bound("c", v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}})
	size := func(s string) v1.ResourceList { return v1.ResourceList{v1.ResourceStorage: resource.MustParse(s)} }
	c.Status.Capacity, pv.Spec.Capacity = size("1Gi"), size("2Gi")
	k := keeper(t, root, s, o, g)
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
	must(t, k.TearDown(t.Context(), p.UID))
}
