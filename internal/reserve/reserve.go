package reserve

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// PIDs is what kubeReserved and systemReserved call process IDs. It is no resource of the
// Node.
const PIDs v1.ResourceName = "pid"

// A Machine is what there is.
type Machine struct {
	Capacity v1.ResourceList // of the Node
	CPUs     []int           // the numbers of those that are online; for reservedSystemCPUs
	PIDs     int64           // how many processes and threads the kernel lets run; 0: not known
}

// A Share is a machine divided between pods and the rest.
type Share struct {
	Capacity     v1.ResourceList
	Kube, System v1.ResourceList // kept for the node's own programs, and for all others
	Eviction     v1.ResourceList // kept free by evictionHard: pods may have it for a while
	pids         int64
}

// New divides a machine as a configuration that is valid says. The error says what of it
// cannot be had here.
func New(k *kubelet.KubeletConfiguration, m Machine) (Share, error) {
	s := Share{Capacity: m.Capacity, pids: m.PIDs}
	var err error
	if s.Kube, err = quantities("kubeReserved", k.KubeReserved); err != nil {
		return Share{}, err
	}
	if s.System, err = quantities("systemReserved", k.SystemReserved); err != nil {
		return Share{}, err
	}
	if k.ReservedSystemCPUs != "" { // it takes the place of the numbers of CPUs
		cpus, err := CPUs(k.ReservedSystemCPUs)
		if err != nil {
			return Share{}, err
		}
		for _, cpu := range cpus {
			if !slices.Contains(m.CPUs, cpu) {
				return Share{}, fmt.Errorf("reservedSystemCPUs: CPU %d of %s is not among those of this machine", cpu, k.ReservedSystemCPUs)
			}
		}
		delete(s.Kube, v1.ResourceCPU)
		s.System[v1.ResourceCPU] = *resource.NewQuantity(int64(len(cpus)), resource.DecimalSI)
	}
	s.Eviction = evictions(k.EvictionHard, m.Capacity)
	return s, s.check()
}

func quantities(name string, list map[string]string) (v1.ResourceList, error) {
	out := v1.ResourceList{}
	for key, text := range list {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("%s[%s]: %w", name, key, err)
		}
		out[v1.ResourceName(key)] = q
	}
	return out, nil
}

// maxCPU bounds the numbers of CPUs: Linux can have no more.
const maxCPU = 8192

// CPUs reads a list such as 0,2-3.
func CPUs(list string) (out []int, err error) {
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		from, err := strconv.ParseUint(low, 10, 16)
		to := from
		if err == nil && isRange {
			to, err = strconv.ParseUint(high, 10, 16)
		}
		if err != nil || to < from || to >= maxCPU {
			return nil, fmt.Errorf("%q is no list of CPUs such as 0,2-3", list)
		}
		for cpu := from; cpu <= to; cpu++ {
			out = append(out, int(cpu))
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// evictions are what the hard thresholds keep free: 0% and 100% switch one off.
func evictions(hard map[string]string, capacity v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for signal, name := range map[string]v1.ResourceName{"memory.available": v1.ResourceMemory, "nodefs.available": v1.ResourceEphemeralStorage} {
		text, ok := hard[signal]
		if !ok || text == "0%" || text == "100%" {
			continue
		}
		if number, percent := strings.CutSuffix(text, "%"); percent {
			if p, err := strconv.ParseFloat(number, 32); err == nil {
				have := capacity[name]
				out[name] = *resource.NewQuantity(int64(float64(have.Value())*float64(float32(p)/100)), resource.BinarySI)
			}
		} else if q, err := resource.ParseQuantity(text); err == nil {
			out[name] = q
		}
	}
	return out
}

// reserved is all that is kept of a resource.
func (s Share) reserved(name v1.ResourceName) (q resource.Quantity) {
	for _, l := range []v1.ResourceList{s.System, s.Kube, s.Eviction} {
		q.Add(l[name])
	}
	return q
}

// Reserved is what is kept of each resource of the Node; of which nothing is kept it has
// nothing.
func (s Share) Reserved() v1.ResourceList {
	out := v1.ResourceList{}
	for name := range s.Capacity {
		if q := s.reserved(name); !q.IsZero() {
			out[name] = q
		}
	}
	return out
}

// check refuses to keep more than there is, in a kubelet's words.
func (s Share) check() error {
	var text []string
	for _, name := range slices.Sorted(maps.Keys(s.Capacity)) {
		have, kept := s.Capacity[name], s.reserved(name)
		if kept.Cmp(have) > 0 {
			text = append(text, fmt.Sprintf("Resource %q has a reservation of %v but capacity of %v. Expected capacity >= reservation.", name, &kept, &have))
		}
	}
	if len(text) == 0 {
		return nil
	}
	return errors.New("invalid Node Allocatable configuration. " + strings.Join(text, " "))
}

// Allocatable is what pods may ask for together. Memory that is in huge pages is no other
// memory.
func (s Share) Allocatable() v1.ResourceList {
	out := v1.ResourceList{}
	var huge resource.Quantity
	for name, have := range s.Capacity {
		out[name] = less(have, s.reserved(name))
		if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			huge.Add(have)
		}
	}
	if memory, ok := out[v1.ResourceMemory]; ok && !huge.IsZero() {
		out[v1.ResourceMemory] = less(memory, huge)
	}
	return out
}

// Enforced is what all pods together are held to: what is kept for evictions is theirs
// until it is needed. With PIDs, where the kernel says how many there are. Without pods in
// enforceNodeAllocatable it is all there is.
func (s Share) Enforced(enforce []string) v1.ResourceList {
	out := maps.Clone(s.Capacity)
	if s.pids > 0 {
		out[PIDs] = *resource.NewQuantity(s.pids, resource.DecimalSI)
	}
	if !slices.Contains(enforce, "pods") {
		return out
	}
	for name, have := range out {
		out[name] = less(less(have, s.System[name]), s.Kube[name])
	}
	return out
}

// KeepsPIDs reports whether process IDs are kept from pods.
func (s Share) KeepsPIDs() bool {
	kube, system := s.Kube[PIDs], s.System[PIDs]
	return !kube.IsZero() || !system.IsZero()
}

// less is a difference, but not below zero.
func less(a, b resource.Quantity) resource.Quantity {
	out := a.DeepCopy()
	out.Sub(b)
	if out.Sign() < 0 {
		out.Set(0)
	}
	return out
}
