package usage

import (
	"context"
	"iter"
	"os"
	"path/filepath"
	"sort"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Plugin directories of volumes that are on the node's file system.
const (
	emptyDir    = "kubernetes.io~empty-dir"
	configMap   = "kubernetes.io~configmap"
	secret      = "kubernetes.io~secret"
	projected   = "kubernetes.io~projected"
	downwardAPI = "kubernetes.io~downward-api"
)

var localPlugins = []string{emptyDir, configMap, secret, projected, downwardAPI}

// addStorage adds the figures of a pod's volumes, and of its total use of the node's file system. The total includes the
// volumes, logs, writable layers, and the files in the pod's directory that containers can write: /etc/hosts and
// termination logs.
func (n *nodeAnswer) addStorage(ctx context.Context, p *pod, out *stats.PodStats) {
	var bytes, inodes uint64
	add := func(fs *stats.FsStats) {
		if fs != nil {
			bytes, inodes = bytes+*fs.UsedBytes, inodes+*fs.InodesUsed
		}
	}
	for i := range out.Containers {
		add(out.Containers[i].Rootfs)
	}
	if n.measure != nil {
		for _, dir := range n.otherPaths(p) {
			u := n.measure(ctx, dir)
			bytes, inodes = bytes+u.Bytes, inodes+u.Inodes
		}
	}
	if n.measure != nil && n.c.Root != "" {
		for _, v := range n.measureVolumes(ctx, p) {
			out.VolumeStats = append(out.VolumeStats, v.VolumeStats)
			if !v.inMemory {
				add(&v.FsStats)
			}
		}
	}
	out.VolumeStats = append(out.VolumeStats, n.mounted[types.UID(p.uid)]...)
	out.EphemeralStorage = n.onFs(n.fs, metav1.Now().UnixNano(), bytes, inodes)
}

// otherPaths returns the paths of a pod that are not part of a volume or writable layer: all its logs, also those of
// ended containers, and other files in the pod's directory.
func (n *nodeAnswer) otherPaths(p *pod) (paths []string) {
	if p.uid == "" || strings.ContainsRune(p.uid, filepath.Separator) {
		return nil
	}
	if n.c.LogsDir != "" {
		paths = append(paths, n.c.LogsDir+"/"+p.namespace+"_"+p.name+"_"+p.uid)
	}
	if n.c.Root != "" {
		for _, name := range []string{"containers", "etc-hosts", "plugins"} {
			paths = append(paths, filepath.Join(n.c.Root, "pods", p.uid, name))
		}
	}
	return paths
}

type volume struct {
	stats.VolumeStats
	inMemory bool
}

// measureVolumes measures the pod's volumes that are directories on this node. It measures a tmpfs as a whole file
// system.
func (n *nodeAnswer) measureVolumes(ctx context.Context, p *pod) (out []volume) {
	if p.uid == "" || strings.ContainsRune(p.uid, filepath.Separator) {
		return nil
	}
	top := filepath.Join(n.c.Root, "pods", p.uid, "volumes")
	for plugin, name := range n.localVolumes(p, top) {
		dir := filepath.Join(top, plugin, name)
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			continue // the directory does not exist yet, or was removed
		}
		v := volume{VolumeStats: stats.VolumeStats{Name: name}}
		if d, err := n.c.Host.Disk(ctx, dir); err == nil && d.Type == "tmpfs" {
			v.FsStats, v.inMemory = *fsOf(d), true
		} else {
			u := n.measure(ctx, dir)
			v.FsStats = *n.onFs(n.fs, u.At.UnixNano(), u.Bytes, u.Inodes)
		}
		out = append(out, v)
	}
	// It uses sort.Slice, because slices.SortFunc adds 20 KB to the binary for each type that it sorts.
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// localVolumes iterates over the plugin directories and names of a pod's volumes on the node's file system. They are
// read from the pod's spec or, if the pod is unknown, from its directory.
func (n *nodeAnswer) localVolumes(p *pod, top string) iter.Seq2[string, string] {
	return func(yield func(plugin, name string) bool) {
		if p.spec != nil {
			for i := range p.spec.Spec.Volumes {
				v := &p.spec.Spec.Volumes[i]
				if plugin := pluginOf(&v.VolumeSource); plugin != "" && !yield(plugin, v.Name) {
					return
				}
			}
			return
		}
		for _, plugin := range localPlugins {
			entries, err := os.ReadDir(filepath.Join(top, plugin))
			if err != nil {
				continue // the pod has no such volume, or the pod was removed
			}
			for _, e := range entries {
				if !yield(plugin, e.Name()) {
					return
				}
			}
		}
	}
}

// pluginOf returns the plugin directory of a volume. It returns "" if localVolumes does not iterate over this volume.
func pluginOf(v *v1.VolumeSource) string {
	switch {
	case v.EmptyDir != nil:
		return emptyDir
	case v.ConfigMap != nil:
		return configMap
	case v.Secret != nil:
		return secret
	case v.Projected != nil:
		return projected
	case v.DownwardAPI != nil:
		return downwardAPI
	}
	return ""
}
