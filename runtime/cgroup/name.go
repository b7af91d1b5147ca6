package cgroup

import (
	"path"
	"strings"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A cgroupName is the path of a cgroup relative to the root of the hierarchy, in the kubelet's notation,
// such as {"kubepods", "burstable", "pod<uid>"}.
type cgroupName []string

func qosName(root cgroupName, c v1.PodQOSClass) cgroupName {
	n := append(root[:len(root):len(root)], "kubepods")
	if c != v1.PodQOSGuaranteed {
		n = append(n, strings.ToLower(string(c)))
	}
	return n
}

func podName(root cgroupName, c v1.PodQOSClass, uid types.UID) cgroupName {
	return append(qosName(root, c), "pod"+string(uid))
}

// cgroupfsPath returns the path relative to the root of the hierarchy.
func (n cgroupName) cgroupfsPath() string { return "/" + path.Join(n...) }

// sliceName returns the name of the systemd slice. Dashes separate the components. A dash in a
// component becomes an underscore.
func (n cgroupName) sliceName() string {
	if len(n) == 0 {
		return "-.slice"
	}
	parts := make([]string, len(n))
	for i, p := range n {
		parts[i] = strings.ReplaceAll(p, "-", "_")
	}
	return strings.Join(parts, "-") + ".slice"
}

// slicePath returns the path of the slice relative to the root of the hierarchy.
func (n cgroupName) slicePath() string {
	out := "/"
	for i := range n {
		out = path.Join(out, n[:i+1].sliceName())
	}
	return out
}

// cgroupConfig returns the configuration of the cgroup for the cgroup library.
func (n cgroupName) cgroupConfig(systemd bool, r *cgroups.Resources) *cgroups.Cgroup {
	if systemd {
		return &cgroups.Cgroup{Name: n.sliceName(), Parent: n[:len(n)-1].sliceName(), Resources: r, Systemd: true}
	}
	return &cgroups.Cgroup{Path: n.cgroupfsPath(), Resources: r}
}

// leafName returns the last element of the path of cgroup n.
func (p *Pods) leafName(n cgroupName) string {
	if p.systemd {
		return n.sliceName()
	}
	return n[len(n)-1]
}
