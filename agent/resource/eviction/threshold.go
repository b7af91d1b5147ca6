package eviction

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/internal/sorting"
)

// A Signal names the resource of a threshold.
type Signal string

// The signals of a kubelet.
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#eviction-signals
const (
	Memory          Signal = "memory.available"
	PodsMemory      Signal = "allocatableMemory.available"
	NodeFs          Signal = "nodefs.available"
	NodeInodes      Signal = "nodefs.inodesFree"
	ImageFs         Signal = "imagefs.available"
	ImageInodes     Signal = "imagefs.inodesFree"
	ContainerFs     Signal = "containerfs.available"
	ContainerInodes Signal = "containerfs.inodesFree"
	PIDs            Signal = "pid.available"
)

// Names of resources that occur only in messages.
const (
	inodes v1.ResourceName = "inodes"
	pids   v1.ResourceName = "pids"
)

// A signalInfo maps a signal to its condition and resource.
type signalInfo struct {
	signal    Signal
	condition v1.NodeConditionType
	resource  v1.ResourceName
}

// signalInfos returns the signals in the order in which thresholds are acted on. Memory is first because it runs out
// fastest.
func signalInfos() []signalInfo {
	return []signalInfo{
		{Memory, v1.NodeMemoryPressure, v1.ResourceMemory},
		{PodsMemory, v1.NodeMemoryPressure, v1.ResourceMemory},
		{NodeFs, v1.NodeDiskPressure, v1.ResourceEphemeralStorage},
		{NodeInodes, v1.NodeDiskPressure, inodes},
		{ImageFs, v1.NodeDiskPressure, v1.ResourceEphemeralStorage},
		{ImageInodes, v1.NodeDiskPressure, inodes},
		{ContainerFs, v1.NodeDiskPressure, v1.ResourceEphemeralStorage},
		{ContainerInodes, v1.NodeDiskPressure, inodes},
		{PIDs, v1.NodePIDPressure, pids},
	}
}

// signalIndex returns the index of a signal in signalInfos, or -1 if the signal is unknown.
func signalIndex(s Signal) int {
	return slices.IndexFunc(signalInfos(), func(m signalInfo) bool { return m.signal == s })
}

func (s Signal) signalInfo() signalInfo { return signalInfos()[signalIndex(s)] }

// A Value is either a quantity or a fraction of the total.
type Value struct {
	Quantity *resource.Quantity // if nil, Part is used
	Part     float64            // from 0 to 1
}

// units returns the value in the signal's units, given the total.
func (v Value) units(total uint64) uint64 {
	if v.Quantity != nil {
		return uint64(max(v.Quantity.Value(), 0))
	}
	return uint64(float64(total) * v.Part)
}

// quantity returns the value in the format that messages use.
func (v Value) quantity(total uint64) *resource.Quantity {
	if v.Quantity != nil {
		return v.Quantity
	}
	return resource.NewQuantity(int64(min(v.units(total), math.MaxInt64)), resource.BinarySI)
}

// A Threshold is met when less than Value is free.
type Threshold struct {
	Signal  Signal
	Value   Value
	Soft    bool
	Grace   time.Duration // how long a soft threshold must be met before it is active
	Reclaim Value         // how much more must be free before an active threshold ends
}

// compareThresholds compares thresholds by the order in which they are acted on.
func compareThresholds(a, b Threshold) int {
	if a.Soft != b.Soft && signalIndex(a.Signal) == signalIndex(b.Signal) {
		if b.Soft {
			return -1
		}
		return 1
	}
	return signalIndex(a.Signal) - signalIndex(b.Signal)
}

// Parse returns the thresholds of a configuration, in the order in which they are acted on. All defaults of the
// configuration must be set. A value of 0% or 100% means that there is no threshold.
func Parse(k *kubelet.KubeletConfiguration) ([]Threshold, error) {
	var out []Threshold
	for soft, list := range map[bool]map[string]string{false: k.EvictionHard, true: k.EvictionSoft} {
		for name, text := range list {
			t := Threshold{Signal: Signal(name), Soft: soft}
			field := map[bool]string{false: "evictionHard", true: "evictionSoft"}[soft]
			if signalIndex(t.Signal) < 0 {
				return nil, fmt.Errorf("%s: unknown eviction signal %q", field, name)
			}
			if text == "0%" || text == "100%" {
				continue
			}
			var err error
			if t.Value, err = parseValue(text); err != nil {
				return nil, fmt.Errorf("%s[%s]: %w", field, name, err)
			}
			if r, ok := k.EvictionMinimumReclaim[name]; ok {
				if t.Reclaim, err = parseValue(r); err != nil {
					return nil, fmt.Errorf("evictionMinimumReclaim[%s]: %w", name, err)
				}
			}
			if soft {
				if t.Grace, err = time.ParseDuration(k.EvictionSoftGracePeriod[name]); err != nil || t.Grace < 0 {
					return nil, fmt.Errorf("evictionSoftGracePeriod[%s]: %q is not a valid duration", name, k.EvictionSoftGracePeriod[name])
				}
			}
			out = append(out, t)
		}
	}
	if slices.Contains(k.EnforceNodeAllocatable, "pods") {
		out = addPodsMemory(out)
	}
	sorting.By(out, compareThresholds)
	return out, nil
}

// addPodsMemory adds a threshold for the memory that pods may still use. Its value is the value of memory.available. Call
// it only if all pods together have a memory limit.
func addPodsMemory(list []Threshold) []Threshold {
	has := slices.ContainsFunc(list, func(t Threshold) bool { return t.Signal == PodsMemory && !t.Soft })
	for _, t := range list {
		if t.Signal == Memory && !t.Soft && !has {
			t.Signal = PodsMemory
			return append(list, t)
		}
	}
	return list
}

func parseValue(text string) (v Value, err error) {
	if part, ok := strings.CutSuffix(text, "%"); ok {
		f, err := strconv.ParseFloat(part, 64)
		if err != nil || !(f >= 0 && f <= 100) {
			return v, fmt.Errorf("%q is not a percentage", text)
		}
		return Value{Part: f / 100}, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() < 0 {
		return v, fmt.Errorf("%q is not a quantity", text)
	}
	return Value{Quantity: &q}, nil
}

// withContainerFs replaces the thresholds of the containers' disk. The containers are on the node's disk or on the
// images' disk, so they have the thresholds of that disk. Configured thresholds are ignored, as in a kubelet.
func withContainerFs(list []Threshold, onNode bool) []Threshold {
	from := map[Signal]Signal{ImageFs: ContainerFs, ImageInodes: ContainerInodes}
	if onNode {
		from = map[Signal]Signal{NodeFs: ContainerFs, NodeInodes: ContainerInodes}
	}
	to := slices.Collect(maps.Values(from))
	out := slices.DeleteFunc(slices.Clone(list), func(t Threshold) bool { return slices.Contains(to, t.Signal) })
	for _, t := range list {
		if s, ok := from[t.Signal]; ok {
			t.Signal = s
			out = append(out, t)
		}
	}
	sorting.By(out, compareThresholds)
	return out
}
