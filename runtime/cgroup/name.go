package cgroup

import (
	"path"
	"strings"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A name is the path of a cgroup relative to the root of the hierarchy, in the kubelet's notation,
// such as {"kubepods", "burstable", "pod<uid>"}.
type name []string

func qosName(root name, c v1.PodQOSClass) name {
	n := append(root[:len(root):len(root)], "kubepods")
	if c != v1.PodQOSGuaranteed {
		n = append(n, strings.ToLower(string(c)))
	}
	return n
}

func podName(root name, c v1.PodQOSClass, uid types.UID) name {
	return append(qosName(root, c), "pod"+string(uid))
}

// cgroupfs returns the path relative to the root of the hierarchy.
func (n name) cgroupfs() string { return "/" + path.Join(n...) }

// slice returns the name of the systemd slice. Dashes separate the components. A dash in a
// component becomes an underscore.
func (n name) slice() string {
	if len(n) == 0 {
		return "-.slice"
	}
	parts := make([]string, len(n))
	for i, p := range n {
		parts[i] = strings.ReplaceAll(p, "-", "_")
	}
	return strings.Join(parts, "-") + ".slice"
}

// slices returns the path of the slice relative to the root of the hierarchy.
func (n name) slices() string {
	out := "/"
	for i := range n {
		out = path.Join(out, n[:i+1].slice())
	}
	return out
}

// config returns the configuration of the cgroup for the cgroup library.
func (n name) config(systemd bool, r *cgroups.Resources) *cgroups.Cgroup {
	if systemd {
		return &cgroups.Cgroup{Name: n.slice(), Parent: n[:len(n)-1].slice(), Resources: r, Systemd: true}
	}
	return &cgroups.Cgroup{Path: n.cgroupfs(), Resources: r}
}
