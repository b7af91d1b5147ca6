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

// PIDs is the name of the resource "process IDs" in kubeReserved and systemReserved. A Node does
// not report this resource.
const PIDs v1.ResourceName = "pid"

// A Machine describes the resources of the machine.
type Machine struct {
	Capacity v1.ResourceList // as the Node reports it
	CPUs     []int           // the IDs of the online CPUs, to check reservedSystemCPUs
	PIDs     int64           // the kernel's limit of processes and threads; 0 if unknown
}

// A Share describes which resources of a machine are reserved, and for which purpose.
type Share struct {
	Capacity     v1.ResourceList
	Kube, System v1.ResourceList // reserved for the node's own programs, and for the rest of the system
	Eviction     v1.ResourceList // reserved by evictionHard; pods may use it until they are evicted
	pids         int64
}

// New returns the Share of a machine according to a valid configuration. The error names the
// reservation that this machine cannot satisfy.
func New(k *kubelet.KubeletConfiguration, m Machine) (Share, error) {
	s := Share{Capacity: m.Capacity, pids: m.PIDs}
	var err error
	if s.Kube, err = parseQuantities("kubeReserved", k.KubeReserved); err != nil {
		return Share{}, err
	}
	if s.System, err = parseQuantities("systemReserved", k.SystemReserved); err != nil {
		return Share{}, err
	}
	if k.ReservedSystemCPUs != "" { // overrides the CPU quantities of both reservations
		cpus, err := CPUs(k.ReservedSystemCPUs)
		if err != nil {
			return Share{}, err
		}
		for _, cpu := range cpus {
			if !slices.Contains(m.CPUs, cpu) {
				return Share{}, fmt.Errorf("reservedSystemCPUs: this machine has no CPU %d, which %s names", cpu, k.ReservedSystemCPUs)
			}
		}
		delete(s.Kube, v1.ResourceCPU)
		s.System[v1.ResourceCPU] = *resource.NewQuantity(int64(len(cpus)), resource.DecimalSI)
	}
	s.Eviction = evictionReserve(k.EvictionHard, m.Capacity)
	return s, s.check()
}

func parseQuantities(name string, list map[string]string) (v1.ResourceList, error) {
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

// maxCPU is the maximum number of CPUs, the largest NR_CPUS of Linux. CPU IDs are smaller.
const maxCPU = 8192

// CPUs parses a CPU list such as 0,2-3 and returns the sorted IDs.
func CPUs(list string) (out []int, err error) {
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		from, err := strconv.ParseUint(low, 10, 16)
		to := from
		if err == nil && isRange {
			to, err = strconv.ParseUint(high, 10, 16)
		}
		if err != nil || to < from || to >= maxCPU {
			return nil, fmt.Errorf("%q is not a list of CPUs such as 0,2-3", list)
		}
		for cpu := from; cpu <= to; cpu++ {
			out = append(out, int(cpu))
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// evictionReserve returns the memory and disk space that the hard thresholds reserve. 0% and 100% disable
// a threshold.
func evictionReserve(hard map[string]string, capacity v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	signals := map[string]v1.ResourceName{
		"memory.available": v1.ResourceMemory,
		"nodefs.available": v1.ResourceEphemeralStorage,
	}
	for signal, name := range signals {
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

// sumReserved returns the sum of all reservations of a resource.
func (s Share) sumReserved(name v1.ResourceName) (q resource.Quantity) {
	for _, l := range []v1.ResourceList{s.System, s.Kube, s.Eviction} {
		q.Add(l[name])
	}
	return q
}

// Reserved returns the sum of all reservations for each resource of the Node. It omits resources without a
// reservation.
func (s Share) Reserved() v1.ResourceList {
	out := v1.ResourceList{}
	for name := range s.Capacity {
		if q := s.sumReserved(name); !q.IsZero() {
			out[name] = q
		}
	}
	return out
}

// check returns an error, with the wording of a kubelet, if the reservations exceed the capacity.
func (s Share) check() error {
	var text []string
	for _, name := range slices.Sorted(maps.Keys(s.Capacity)) {
		have, kept := s.Capacity[name], s.sumReserved(name)
		if kept.Cmp(have) > 0 {
			text = append(text, fmt.Sprintf(
				"Resource %q has a reservation of %v but capacity of %v. Expected capacity >= reservation.", name, &kept, &have))
		}
	}
	if len(text) == 0 {
		return nil
	}
	return errors.New("invalid Node Allocatable configuration. " + strings.Join(text, " "))
}

// Allocatable returns the resources that all pods together may request. Its memory does not include
// huge pages.
func (s Share) Allocatable() v1.ResourceList {
	out := v1.ResourceList{}
	var huge resource.Quantity
	for name, have := range s.Capacity {
		out[name] = subtract(have, s.sumReserved(name))
		if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			huge.Add(have)
		}
	}
	if memory, ok := out[v1.ResourceMemory]; ok && !huge.IsZero() {
		out[v1.ResourceMemory] = subtract(memory, huge)
	}
	return out
}

// EnforcedLimits returns the limits of all pods together. It does not subtract the reservation for evictions, because pods
// may use it until they are evicted. It includes PIDs if the kernel's limit is known. If enforceNodeAllocatable does
// not contain "pods", it returns the capacity.
func (s Share) EnforcedLimits(enforce []string) v1.ResourceList {
	out := maps.Clone(s.Capacity)
	if s.pids > 0 {
		out[PIDs] = *resource.NewQuantity(s.pids, resource.DecimalSI)
	}
	if !slices.Contains(enforce, "pods") {
		return out
	}
	for name, have := range out {
		out[name] = subtract(subtract(have, s.System[name]), s.Kube[name])
	}
	return out
}

// KeepsPIDs reports whether a reservation contains process IDs.
func (s Share) KeepsPIDs() bool {
	kube, system := s.Kube[PIDs], s.System[PIDs]
	return !kube.IsZero() || !system.IsZero()
}

// subtract returns a - b, or zero if that is negative.
func subtract(a, b resource.Quantity) resource.Quantity {
	out := a.DeepCopy()
	out.Sub(b)
	if out.Sign() < 0 {
		out.Set(0)
	}
	return out
}
