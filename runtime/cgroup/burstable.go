package cgroup

import (
	"path/filepath"
	"sort"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
)

// leaf returns the last element of the path of cgroup n.
func (p *Pods) leaf(n name) string {
	if p.systemd {
		return n.slice()
	}
	return n[len(n)-1]
}

// addRequest adds a pod's CPU request to the shares of the Burstable class. These shares are the
// sum of the pods' requests, as with a kubelet.
// https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/
func (p *Pods) addRequest(n name, milli int64) error {
	p.burstable[p.leaf(n)] = milli
	return p.setBurstable()
}

func (p *Pods) removeRequest(n name) error {
	if _, ok := p.burstable[p.leaf(n)]; !ok {
		return nil
	}
	delete(p.burstable, p.leaf(n))
	return p.setBurstable()
}

func (p *Pods) setBurstable() error {
	var sum int64
	for _, m := range p.burstable {
		sum += m
	}
	_, err := p.make(qosName(p.root, v1.PodQOSBurstable), &cgroups.Resources{SkipDevices: true, CpuShares: shares(sum)}, nil)
	return err
}

// findBurstable counts the pods that an earlier agent prepared, because Prepare may not be called
// again for them while they run. It derives their requests from their cgroups' shares. On v2 the
// result is approximate, because there are fewer weights than shares. above has the class's
// directory for each controller. It skips a cgroup that cannot be read, because such a cgroup is
// being removed.
func (p *Pods) findBurstable(above map[string]string) {
	dir, file := above["cpu"], "cpu.shares"
	if cgroups.IsCgroup2UnifiedMode() {
		dir, file = above[""], "cpu.weight"
	}
	for _, pod := range p.podsIn(v1.PodQOSBurstable, dir) {
		var err error
		n := parseLimit(&err, readLine(&err, filepath.Join(dir, p.leaf(pod)), file))
		if cgroups.IsCgroup2UnifiedMode() {
			n = sharesOf(n)
		}
		if err == nil && n > minShares {
			p.burstable[p.leaf(pod)] = (n*1000 + 1023) / 1024
		} else if err == nil && n > 0 {
			p.burstable[p.leaf(pod)] = 0
		}
	}
}

// sharesOf returns the smallest number of shares that is converted to this weight.
func sharesOf(weight int64) int64 {
	return int64(sort.Search(maxShares, func(shares int) bool {
		return int64(cgroups.ConvertCPUSharesToCgroupV2Value(uint64(shares))) >= weight
	}))
}
