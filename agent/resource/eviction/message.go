package eviction

import (
	"fmt"
	"math"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/internal/podspec"
)

// Keys of a kubelet's annotations on the event of an eviction.
const (
	starvedResource     = "starved_resource"
	offendingContainers = "offending_containers"
	offendingUsage      = "offending_containers_usage"
	offendingPod        = "offending_pod"
	offendingPodUsage   = "offending_pod_usage"
)

// Message returns a kubelet's message for an eviction, and the annotations for the event. Both list the containers
// that use more than their request.
func Message(c Candidate, t Threshold, o Observations) (message string, annotations map[string]string) {
	var b strings.Builder
	what := t.Signal.signalInfo().resource
	fmt.Fprintf(&b, "The node was low on resource: %s. ", what)
	a := o[t.Signal]
	fmt.Fprintf(&b, "Threshold quantity: %v, available: %v. ", t.Value.quantity(a.Total), amount(a.Free, what))
	annotations = map[string]string{starvedResource: string(what)}
	if c.Stats == nil {
		return b.String(), annotations
	}
	larger := func(kind, name string, used *resource.Quantity, asked resource.Quantity) {
		fmt.Fprintf(&b, "%s %s was using %s, request is %s, has larger consumption of %v. ", kind, name, used, asked.String(), what)
	}
	if r := c.Pod.Spec.Resources; r != nil && what == v1.ResourceMemory && c.Stats.Memory != nil {
		if asked, ok := r.Requests[what]; ok {
			used := amount(value64(c.Stats.Memory.WorkingSetBytes), what)
			larger("Pod", c.Pod.Name, used, asked)
			annotations[offendingPod], annotations[offendingPodUsage] = c.Pod.Name, used.String()
		}
	}
	var names, uses []string
	for i := range c.Stats.Containers {
		s := &c.Stats.Containers[i]
		kind, ctr := podspec.Find(&c.Pod.Spec, s.Name)
		if ctr == nil || kind == podspec.Ephemeral { // ephemeral containers have no requests
			continue
		}
		asked := ctr.Resources.Requests[what]
		if used := usedBy(s, what); used != nil && used.Cmp(asked) > 0 {
			larger("Container", s.Name, used, asked)
			names, uses = append(names, s.Name), append(uses, used.String())
		}
	}
	annotations[offendingContainers], annotations[offendingUsage] = strings.Join(names, ","), strings.Join(uses, ",")
	return b.String(), annotations
}

// foreignFiles is the reason in a Node event: a disk is filled by files that belong to no pod.
const foreignFiles = "ForeignFilesFillDisk"

// foreignMessage returns the message that a disk is nearly full and that evicting a pod would not help.
func foreignMessage(list []Candidate, t Threshold, o Observations, d Disks) string {
	a, what := o[t.Signal], t.Signal.signalInfo().resource
	sum := 0.0
	for _, c := range list {
		sum += usedAmount(c, t.Signal, d)
	}
	return fmt.Sprintf("The disk of %s is nearly full (threshold quantity: %v, available: %v), and no pod is evicted: "+
		"the pods use only %v of it. Other files, or critical pods, fill the disk. Unused images and containers were removed.",
		t.Signal, t.Value.quantity(a.Total), amount(a.Free, what), amount(uint64(sum), what))
}

// usedBy returns how much of a resource a container uses, or nil if that is unknown.
func usedBy(s *stats.ContainerStats, what v1.ResourceName) *resource.Quantity {
	switch {
	case what == v1.ResourceMemory && s.Memory != nil && s.Memory.WorkingSetBytes != nil:
		return amount(*s.Memory.WorkingSetBytes, what)
	case what == v1.ResourceEphemeralStorage && s.Rootfs != nil && s.Logs != nil:
		return amount(value64(s.Rootfs.UsedBytes)+value64(s.Logs.UsedBytes), what)
	}
	return nil
}

func value64(n *uint64) uint64 {
	if n == nil {
		return 0
	}
	return *n
}

// amount returns a quantity in the format that messages use.
func amount(n uint64, what v1.ResourceName) *resource.Quantity {
	format := resource.BinarySI
	if what == inodes || what == pids {
		format = resource.DecimalSI
	}
	return resource.NewQuantity(int64(min(n, math.MaxInt64)), format)
}
