package admit

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Node is what pods are measured against.
type Node struct {
	Name        string
	OS, Arch    string            // runtime.GOOS, runtime.GOARCH
	Labels      map[string]string // of the node
	Allocatable v1.ResourceList   // nil: resources are not counted
	Sysctls     []string          // allowed beyond the safe ones; a final * stands for any rest
}

// A Rejection says in the kubelet's words why a pod may not run.
type Rejection struct{ Reason, Message string }

func reject(reason, format string, args ...any) *Rejection {
	return &Rejection{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Admit says whether pod may run beside others, the pods that were admitted and
// have not ended. It returns nil if so.
func Admit(pod *v1.Pod, others []*v1.Pod, n Node) *Rejection {
	for _, check := range []func(*v1.Pod, []*v1.Pod, Node) *Rejection{operatingSystem, nodeName, selector, sysctls, duplicate, ports, resources} {
		if r := check(pod, others, n); r != nil {
			return r
		}
	}
	return nil
}

func operatingSystem(pod *v1.Pod, _ []*v1.Pod, n Node) *Rejection {
	if os := pod.Spec.OS; os != nil && string(os.Name) != n.OS {
		return reject("PodOSNotSupported", "Pod's operating system field doesn't match this node's (%s)", n.OS)
	}
	for key, have := range map[string]string{v1.LabelOSStable: n.OS, v1.LabelArchStable: n.Arch} {
		if want, ok := pod.Spec.NodeSelector[key]; ok && want != have {
			return reject("PodOSSelectorNodeLabelDoesNotMatch", "Pod selects nodes with %s=%s, this node's is %s", key, want, have)
		}
	}
	return nil
}

func nodeName(pod *v1.Pod, _ []*v1.Pod, n Node) *Rejection {
	if pod.Spec.NodeName != "" && pod.Spec.NodeName != n.Name {
		return reject("NodeName", "Predicate NodeName failed: the pod is bound to node %s, this is %s", pod.Spec.NodeName, n.Name)
	}
	return nil
}

// selector checks the pod's nodeSelector. Node affinity is the scheduler's.
func selector(pod *v1.Pod, _ []*v1.Pod, n Node) *Rejection {
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		have, ok := n.Labels[key]
		if key == v1.LabelOSStable || key == v1.LabelArchStable { // checked above
			continue
		}
		if want := pod.Spec.NodeSelector[key]; !ok || have != want {
			return reject("NodeAffinity", "Predicate NodeAffinity failed: node didn't match Pod's node selector %s=%s", key, want)
		}
	}
	return nil
}

func duplicate(pod *v1.Pod, others []*v1.Pod, _ Node) *Rejection {
	for _, o := range others {
		if o.UID != pod.UID && o.Name == pod.Name && o.Namespace == pod.Namespace {
			return reject("DuplicatePodName", "another pod of that name and namespace, with UID %s, runs on this node", o.UID)
		}
	}
	return nil
}

// A port is taken by protocol and number on one host address or on all.
type port struct {
	protocol v1.Protocol
	number   int32
	ip       string // empty: all
}

func (p port) conflicts(o port) bool {
	return p.protocol == o.protocol && p.number == o.number && (p.ip == o.ip || p.ip == "" || o.ip == "")
}

func hostPorts(pod *v1.Pod) (out []port) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, p := range c.Ports {
			if p.HostPort == 0 {
				continue
			}
			h := port{protocol: p.Protocol, number: p.HostPort, ip: p.HostIP}
			if h.protocol == "" {
				h.protocol = v1.ProtocolTCP
			}
			if h.ip == "0.0.0.0" || h.ip == "::" {
				h.ip = ""
			}
			out = append(out, h)
		}
	}
	return out
}

func ports(pod *v1.Pod, others []*v1.Pod, _ Node) *Rejection {
	wanted := hostPorts(pod)
	for _, o := range others {
		for _, taken := range hostPorts(o) {
			if o.UID != pod.UID && slices.ContainsFunc(wanted, taken.conflicts) {
				return reject("NodePorts", "Predicate NodePorts failed: host port %d/%s is taken by pod %s/%s", taken.number, taken.protocol, o.Namespace, o.Name)
			}
		}
	}
	return nil
}

func resources(pod *v1.Pod, others []*v1.Pod, n Node) *Rejection {
	if n.Allocatable == nil {
		return nil
	}
	used := v1.ResourceList{}
	for _, o := range others {
		if o.UID != pod.UID {
			add(used, Requests(o))
			add(used, v1.ResourceList{v1.ResourcePods: *resource.NewQuantity(1, resource.DecimalSI)})
		}
	}
	asked := Requests(pod)
	add(asked, v1.ResourceList{v1.ResourcePods: *resource.NewQuantity(1, resource.DecimalSI)})
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		have, ok := n.Allocatable[name]
		q, taken := asked[name], used[name]
		if q.IsZero() || name == v1.ResourcePods && !ok {
			continue
		}
		sum := q.DeepCopy()
		sum.Add(taken)
		if sum.Cmp(have) > 0 {
			return reject("OutOf"+string(name), "Node didn't have enough resource: %s, requested: %v, used: %v, capacity: %v", name, figure(name, q), figure(name, taken), figure(name, have))
		}
	}
	return nil
}

func figure(name v1.ResourceName, q resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// Requests is what a pod asks of a node: the sum of its main containers and
// sidecars, or what an init container needs while the sidecars before it run, if
// that is more, and the overhead (KEP-753).
func Requests(pod *v1.Pod) v1.ResourceList {
	total, sidecars, most := v1.ResourceList{}, v1.ResourceList{}, v1.ResourceList{}
	for i := range pod.Spec.Containers {
		add(total, pod.Spec.Containers[i].Resources.Requests)
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			add(sidecars, c.Resources.Requests)
			raise(most, sidecars)
			continue
		}
		step := sidecars.DeepCopy()
		add(step, c.Resources.Requests)
		raise(most, step)
	}
	add(total, sidecars)
	raise(total, most)
	if pod.Spec.Resources != nil { // pod-level requests replace the sums (KEP-2837)
		maps.Copy(total, pod.Spec.Resources.Requests)
	}
	add(total, pod.Spec.Overhead)
	return total
}

func add(to, more v1.ResourceList) {
	for name, q := range more {
		sum := to[name].DeepCopy()
		sum.Add(q)
		to[name] = sum
	}
}

func raise(to, least v1.ResourceList) {
	for name, q := range least {
		if have := to[name]; q.Cmp(have) > 0 {
			to[name] = q.DeepCopy()
		}
	}
}
