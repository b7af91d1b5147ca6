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
)

// A Signal is what a threshold is on.
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

// Resources that only messages name.
const (
	inodes v1.ResourceName = "inodes"
	pids   v1.ResourceName = "pids"
)

// A meaning is what a signal says.
type meaning struct {
	signal    Signal
	condition v1.NodeConditionType
	resource  v1.ResourceName
}

// meanings are in the order in which thresholds are acted on: memory goes fastest.
func meanings() []meaning {
	return []meaning{
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

// order is the place of a signal among all, -1 if there is no such.
func order(s Signal) int {
	return slices.IndexFunc(meanings(), func(m meaning) bool { return m.signal == s })
}

func (s Signal) meaning() meaning { return meanings()[order(s)] }

// A Value is a quantity, or a part of all.
type Value struct {
	Quantity *resource.Quantity // nil: Part counts
	Part     float64            // 0 to 1
}

// of is the value in units, where there are so many in all.
func (v Value) of(total uint64) uint64 {
	if v.Quantity != nil {
		return uint64(max(v.Quantity.Value(), 0))
	}
	return uint64(float64(total) * v.Part)
}

// quantity is the value as messages show it.
func (v Value) quantity(total uint64) *resource.Quantity {
	if v.Quantity != nil {
		return v.Quantity
	}
	return resource.NewQuantity(int64(min(v.of(total), math.MaxInt64)), resource.BinarySI)
}

// A Threshold is met when less than Value is free.
type Threshold struct {
	Signal  Signal
	Value   Value
	Soft    bool
	Grace   time.Duration // of a soft one: for how long it is met before it counts
	Reclaim Value         // once it counted, so much more has to be free
}

// less orders thresholds by what is acted on first.
func less(a, b Threshold) int {
	if a.Soft != b.Soft && order(a.Signal) == order(b.Signal) {
		if b.Soft {
			return -1
		}
		return 1
	}
	return order(a.Signal) - order(b.Signal)
}

// Parse takes the thresholds from a configuration, in which every default is set, in the
// order in which they are acted on. 0% and 100% stand for none.
func Parse(k *kubelet.KubeletConfiguration) ([]Threshold, error) {
	var out []Threshold
	for soft, list := range map[bool]map[string]string{false: k.EvictionHard, true: k.EvictionSoft} {
		for name, text := range list {
			t := Threshold{Signal: Signal(name), Soft: soft}
			field := map[bool]string{false: "evictionHard", true: "evictionSoft"}[soft]
			if order(t.Signal) < 0 {
				return nil, fmt.Errorf("%s: there is no signal %q", field, name)
			}
			if text == "0%" || text == "100%" {
				continue
			}
			var err error
			if t.Value, err = value(text); err != nil {
				return nil, fmt.Errorf("%s[%s]: %w", field, name, err)
			}
			if r, ok := k.EvictionMinimumReclaim[name]; ok {
				if t.Reclaim, err = value(r); err != nil {
					return nil, fmt.Errorf("evictionMinimumReclaim[%s]: %w", name, err)
				}
			}
			if soft {
				if t.Grace, err = time.ParseDuration(k.EvictionSoftGracePeriod[name]); err != nil || t.Grace < 0 {
					return nil, fmt.Errorf("evictionSoftGracePeriod[%s]: %q is no time to wait", name, k.EvictionSoftGracePeriod[name])
				}
			}
			out = append(out, t)
		}
	}
	if slices.Contains(k.EnforceNodeAllocatable, "pods") {
		out = withPods(out)
	}
	slices.SortFunc(out, less)
	return out, nil
}

// withPods adds, where all pods together have a limit, that of the machine's memory for
// what is left of theirs.
func withPods(list []Threshold) []Threshold {
	has := slices.ContainsFunc(list, func(t Threshold) bool { return t.Signal == PodsMemory && !t.Soft })
	for _, t := range list {
		if t.Signal == Memory && !t.Soft && !has {
			t.Signal = PodsMemory
			return append(list, t)
		}
	}
	return list
}

func value(text string) (v Value, err error) {
	if part, ok := strings.CutSuffix(text, "%"); ok {
		f, err := strconv.ParseFloat(part, 64)
		if err != nil || !(f >= 0 && f <= 100) {
			return v, fmt.Errorf("%q is no percentage", text)
		}
		return Value{Part: f / 100}, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() < 0 {
		return v, fmt.Errorf("%q is no quantity", text)
	}
	return Value{Quantity: &q}, nil
}

// withContainerFs gives the disk of containers the thresholds of the disk that it is on:
// those of the node's if it is that one, else those of the images'. One that is configured
// for it is ignored, as by a kubelet.
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
	slices.SortFunc(out, less)
	return out
}
