package cgroup

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// resetMemory removes the memory protection and throttling that an agent with another configuration has set for kubepods,
// the QoS classes and the pods. The settings of containers stay until the containers are resized, as with a kubelet. The
// protection of a container has no effect if the cgroups above it are not protected. memory.high of kubepods is not
// changed, because the eviction uses it. The caller holds mu.
func (p *Pods) resetMemory() {
	k := p.c.Memory
	if !k.Unified {
		return
	}
	classes, pods := map[string]string{}, map[string]string{}
	if !k.isTiered() {
		classes[memoryMin], classes[memoryLow] = "0", "0"
		pods[memoryMin], pods[memoryLow] = "0", "0"
	}
	if !k.QoS || k.Throttle == 0 {
		pods[memoryHigh] = "max"
	}
	for c, above := range p.base {
		p.correctFiles(qosName(p.root, c), above[""], classes)
		for _, n := range p.podsIn(c, above[""]) {
			p.correctFiles(n, filepath.Join(above[""], p.leafName(n)), pods)
		}
	}
}

// correctFiles writes those files of a cgroup whose values differ from the wanted ones. It logs an error unless the cgroup is
// gone. After an error, the pods continue to run with the former limits.
func (p *Pods) correctFiles(n cgroupName, dir string, want map[string]string) {
	different := changedValues(dir, want)
	if different == nil {
		return
	}
	if err := p.write(n, &cgroups.Resources{SkipDevices: true, Unified: different}); err != nil && cgroups.PathExists(dir) {
		p.c.Log.Warn("the memory protection of a former configuration could not be removed", "cgroup", n.cgroupfsPath(), "error", err)
	}
}

// changedValues returns the wanted values that differ from the files of a cgroup, or nil if there is no difference. A file
// that does not exist counts as having the kernel's default.
func changedValues(dir string, want map[string]string) (out map[string]string) {
	for file, value := range want {
		var err error
		now := readLine(&err, dir, file)
		if now == "" {
			now = "0"
			if file == memoryHigh {
				now = "max"
			}
		}
		if now == value {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[file] = value
	}
	return out
}

// podsIn returns the names of the pods' cgroups in the directory of a QoS class. With systemd, underscores replace the
// dashes of their UIDs.
func (p *Pods) podsIn(c v1.PodQOSClass, dir string) (out []cgroupName) {
	if dir == "" {
		return nil
	}
	entries, _ := os.ReadDir(dir)
	prefix := strings.TrimSuffix(p.leafName(podName(p.root, c, "")), ".slice")
	for _, e := range entries {
		if uid, ok := strings.CutPrefix(e.Name(), prefix); ok && e.IsDir() {
			out = append(out, podName(p.root, c, types.UID(strings.TrimSuffix(uid, ".slice"))))
		}
	}
	return out
}
