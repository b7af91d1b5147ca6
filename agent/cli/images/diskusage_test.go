package images

import (
	"bytes"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/api"
)

// TestDiskUse checks how the usage of pods, images and claims is added.
func TestDiskUse(t *testing.T) {
	bytes := func(n uint64) *stats.FsStats { return &stats.FsStats{UsedBytes: &n} }
	pods := []v1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: v1.PodSpec{Volumes: []v1.Volume{
		{Name: "tmp", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "ram", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
		{Name: "nfs", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}}}}}}
	running := []stats.PodStats{{PodRef: stats.PodReference{UID: "u"}, Containers: []stats.ContainerStats{{Rootfs: bytes(1), Logs: bytes(10)}, {Logs: bytes(20)}},
		VolumeStats: []stats.VolumeStats{{Name: "tmp", FsStats: *bytes(100)}, {Name: "ram", FsStats: *bytes(1000)}, {Name: "nfs", FsStats: *bytes(1 << 40)}}}}
	for i, want := range []diskUse{{Type: "Containers", Total: 1, InUse: 1, Size: 1}, {Type: "Logs", Total: 2, InUse: 2, Size: 30}, {Type: "EmptyDirs", Total: 1, InUse: 1, Size: 100}} {
		if got := podUse(running, pods)[i]; got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	sum := &stats.Summary{Node: stats.NodeStats{Runtime: &stats.RuntimeStats{ImageFs: bytes(120)}}}
	p := &api.Pruned{Removed: []api.Image{{Size: 200}}, Kept: []api.Kept{{Image: api.Image{Size: 5}}}}
	if got := imageUse(p, sum); got.Size != 120 || got.Reclaimable != 120 || got.Total != 2 || got.InUse != 1 {
		t.Errorf("images: %+v", got)
	}
	claims := []api.Object{{Kind: "PersistentVolumeClaim", Claim: &api.Claim{Used: 7, Exists: true}, Pods: []string{"default/web"}},
		{Kind: "PersistentVolumeClaim", Claim: &api.Claim{Used: 9, Exists: true}}, {Kind: "PersistentVolumeClaim", Claim: &api.Claim{Used: -1, Exists: true}},
		{Kind: "PersistentVolumeClaim", Claim: &api.Claim{}}, {Kind: "Secret"}}
	if got := claimUse(claims); got.Total != 3 || got.InUse != 1 || got.Size != 16 || got.Reclaimable != 9 {
		t.Errorf("claims: %+v", got)
	}
}

// TestDiskTable checks the sizes of a file system with blocks that are reserved for root. They are neither used nor free.
func TestDiskTable(t *testing.T) {
	var out bytes.Buffer
	r := &diskReport{Disks: []api.Disk{{Path: "/x", Total: 100 << 30, Used: 80 << 30, Free: 15 << 30}, {Path: "/y"}}}
	r.print(&command.Tool{Out: &out})
	if text := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(text, "FREE /x 100GiB 80.0GiB 15.0GiB (15%) /y 0B 0B 0B") {
		t.Errorf("%s", out.String())
	}
}
