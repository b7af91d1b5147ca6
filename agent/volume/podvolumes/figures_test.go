package podvolumes

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A claimedKind is a Kind for volumes of drivers.
type claimedKind struct {
	servedKind
	mounted bool
}

func (c *claimedKind) PluginState(_ *v1.Pod, vol *v1.Volume) (string, bool) {
	if vol.NFS.Server == "unbound" {
		return "", false
	}
	return "kubernetes.io/csi:d", c.mounted
}

// TestTotalVolumes checks that each volume that a container uses is counted for its plugin. It counts as a desired volume while its pod is
// desired, and as an actual volume while it is set up.
func TestTotalVolumes(t *testing.T) {
	c := &claimedKind{servedKind: servedKind{t.TempDir(), make(chan struct{})}}
	objects := &fakeAPI{maps: map[string]map[string]string{"cm": {"a": "1"}}}
	v, err := New(Config{Root: t.TempDir(), Objects: objects, Hostname: func(*v1.Pod) (string, string) { return "h", "" }, Kinds: []Kind{c}})
	requireNoError(t, err)
	nfs := func(name, server string) v1.Volume {
		return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: server, Path: "/"}}}
	}
	pod := func(uid types.UID) *v1.Pod {
		p := podWith(emptyDirVolume("disk", ""), emptyDirVolume("unused", ""), host("host", t.TempDir(), ""),
			nfs("claim", "s"), nfs("waits", "unbound"),
			v1.Volume{Name: "cm", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}}},
			v1.Volume{Name: "image", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{}}})
		p.UID = uid
		ctr := v1.Container{Name: "c", VolumeDevices: []v1.VolumeDevice{{Name: "claim"}}}
		for _, name := range []string{"disk", "host", "waits", "cm", "image"} {
			ctr.VolumeMounts = append(ctr.VolumeMounts, v1.VolumeMount{Name: name}, v1.VolumeMount{Name: name})
		}
		p.Spec.Containers = []v1.Container{ctr}
		return p
	}
	pods := []*v1.Pod{pod("u1"), pod("u2"), pod("../hostile")}
	check := func(when string, desired, actual int, claims int) {
		t.Helper()
		want := map[string]int{}
		for _, plugin := range []string{"empty-dir", "host-path", "configmap", "image", "csi:d"} {
			n := actual
			if plugin == "csi:d" {
				n = claims
			}
			for state, n := range map[string]int{"desired": desired, "actual": n} {
				if n > 0 {
					want[fmt.Sprint("kubernetes.io/", plugin, " ", state, "_state_of_world")] = n
				}
			}
		}
		if got := totals(t, v, pods); !maps.Equal(got, want) {
			t.Errorf("%s: %v, not %v", when, got, want)
		}
	}
	check("before they are set up", 2, 0, 0)
	requireNoError(t, os.MkdirAll(filepath.Join(v.podDir("u2"), "volumes/kubernetes.io~configmap/cm"), 0o755)) // an interrupted setup
	requireNoError(t, os.RemoveAll(v.podDir("u2")))
	requireNoError(t, v.Prepare(t.Context(), pods[0]))
	check("one is set up", 2, 1, 0)
	requireNoError(t, v.Prepare(t.Context(), pods[1]))
	c.mounted = true
	check("both are set up", 2, 2, 2)
	pods[0].Status.Phase, pods[1].Status.Phase = v1.PodSucceeded, v1.PodRunning
	check("one has ended, and is not cleaned up yet", 1, 2, 2)
	requireNoError(t, v.Ended(t.Context(), pods[0]))
	c.mounted = false
	check("one has ended", 1, 1, 0)
}

// totals returns the values of the metric for each set of labels.
func totals(t *testing.T, v *Volumes, pods []*v1.Pod) map[string]int {
	t.Helper()
	r := prometheus.NewRegistry()
	for _, c := range v.Collectors(func() []*v1.Pod { return slices.Clone(pods) }) {
		requireNoError(t, r.Register(c))
	}
	all, err := r.Gather()
	requireNoError(t, err)
	out := map[string]int{}
	for _, f := range all {
		for _, m := range f.Metric {
			out[m.Label[0].GetValue()+" "+m.Label[1].GetValue()] = int(m.Gauge.GetValue())
		}
	}
	return out
}
