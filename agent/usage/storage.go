package usage

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// ephemeral are the plugins whose volumes are on the node's own file system.
var ephemeral = []string{"kubernetes.io~empty-dir", "kubernetes.io~configmap", "kubernetes.io~secret", "kubernetes.io~projected", "kubernetes.io~downward-api"}

// storage adds a pod's volumes, and what it has on the node's file system in all: volumes,
// logs, and writable layers.
func (n *nodeAnswer) storage(ctx context.Context, p *pod, out *stats.PodStats) {
	var bytes, inodes uint64
	add := func(fs *stats.FsStats) {
		if fs != nil {
			bytes, inodes = bytes+*fs.UsedBytes, inodes+*fs.InodesUsed
		}
	}
	for i := range out.Containers {
		add(out.Containers[i].Rootfs)
		add(out.Containers[i].Logs)
	}
	if n.measure != nil && n.c.Root != "" {
		for _, v := range n.volumes(ctx, p) {
			out.VolumeStats = append(out.VolumeStats, v.VolumeStats)
			if !v.inMemory {
				add(&v.FsStats)
			}
		}
	}
	out.VolumeStats = append(out.VolumeStats, n.mounted[types.UID(p.uid)]...)
	out.EphemeralStorage = onFs(n.fs, metav1.Now().UnixNano(), bytes, inodes)
}

type volume struct {
	stats.VolumeStats
	inMemory bool
}

// volumes measures the directories of a pod's volumes whose content is on this node. One
// that is a file system in memory is measured as such.
func (n *nodeAnswer) volumes(ctx context.Context, p *pod) (out []volume) {
	if p.uid == "" || strings.ContainsRune(p.uid, filepath.Separator) {
		return nil
	}
	top := filepath.Join(n.c.Root, "pods", p.uid, "volumes")
	for _, plugin := range ephemeral {
		entries, err := os.ReadDir(filepath.Join(top, plugin))
		if err != nil {
			continue // it has none of these, or has just gone
		}
		for _, e := range entries {
			dir := filepath.Join(top, plugin, e.Name())
			if !e.IsDir() {
				continue
			}
			v := volume{VolumeStats: stats.VolumeStats{Name: e.Name()}}
			if d, err := n.c.Host.Disk(ctx, dir); err == nil && d.Type == "tmpfs" {
				v.FsStats, v.inMemory = *fsOf(d), true
			} else {
				u := n.measure(ctx, dir)
				v.FsStats = *onFs(n.fs, u.At.UnixNano(), u.Bytes, u.Inodes)
			}
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b volume) int { return strings.Compare(a.Name, b.Name) })
	return out
}
