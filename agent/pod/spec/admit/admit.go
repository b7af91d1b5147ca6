package admit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/realtime"
)

// Node contains the facts about the node that are needed for admission.
type Node struct {
	Name         string
	OS, Arch     string            // runtime.GOOS, runtime.GOARCH
	Labels       map[string]string // labels of the node
	Taints       []v1.Taint        // taints of the node
	Allocatable  v1.ResourceList   // if nil, resources are not checked
	AppArmor     error             // reason why AppArmor profiles are not enforced; nil if they are enforced
	SELinux      error             // reason why SELinux labels are not enforced; nil if they are enforced
	Sysctls      []string          // sysctls that are allowed in addition to the safe ones; a trailing * matches any suffix
	Quotas       bool              // set if the file system of the volumes supports project quotas
	Limits       bool              // set if local storage is measured, and its limits are enforced by eviction
	ShuttingDown bool              // set if the machine is shutting down; then no pod is admitted
	StrictGroups bool              // set if the runtime supports supplementalGroupsPolicy: Strict
	// StaticCPU and StaticMemory are set if guaranteed pods have exclusive CPUs or memory, which a resize cannot
	// change.
	StaticCPU, StaticMemory bool
	// HasSwap reports whether a container may use swap. It may be nil if none may.
	HasSwap func(*v1.Pod, *v1.Container) bool

	Pressures []v1.NodeConditionType // pressure conditions of the node
	Alpha     []string               // feature gates of the alpha fields that have an effect on this node
	RealTime  realtime.Node          // facts that decide about real time
}

// A Rejection is a kubelet's reason and message why a pod may not run.
type Rejection struct{ Reason, Message string }

func newRejection(reason, format string, args ...any) *Rejection {
	return &Rejection{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// OfResources reports whether a pod was rejected for lack of resources. In this case all other checks have passed,
// because the resources are checked last.
func (r *Rejection) OfResources() bool { return r != nil && strings.HasPrefix(r.Reason, "OutOf") }

// OfNode reports whether a pod was rejected because of the labels or taints of the node.
func (r *Rejection) OfNode() bool {
	return r != nil && (r.Reason == nodeAffinity || r.Reason == taintToleration)
}

// These reasons are the same as in a kubelet.
const (
	nodeAffinity    = "NodeAffinity"
	taintToleration = "TaintToleration"
)

// A Holder is a pod with its host ports and resource requests. Ports and requests are computed only once,
// because each new pod is compared with all others.
type Holder struct {
	Pod      *v1.Pod
	ports    podspec.PortSet
	requests v1.ResourceList
}

// NewHolder returns the Holder of a pod. The pod must not be changed afterwards.
func NewHolder(pod *v1.Pod) *Holder {
	ports := podspec.NewPortSet(podspec.HostPorts(&pod.Spec))
	h := &Holder{Pod: pod, ports: ports, requests: demand.Requests(withoutClaimed(pod))}
	h.requests[v1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return h
}

// withoutClaimed returns the pod without those resource requests that the scheduler has turned into resource claims. The
// node does not count these requests.
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/5004-dra-extended-resource
func withoutClaimed(pod *v1.Pod) *v1.Pod {
	st := pod.Status.ExtendedResourceClaimStatus
	if st == nil || len(st.RequestMappings) == 0 {
		return pod
	}
	pod = pod.DeepCopy()
	for kind, ctr := range podspec.Containers(&pod.Spec) {
		for _, m := range st.RequestMappings {
			if kind != podspec.Ephemeral && m.ContainerName == ctr.Name {
				delete(ctr.Resources.Requests, v1.ResourceName(m.ResourceName))
			}
		}
	}
	return pod
}

// AtLeast raises the requests of a pod to at least these values. Use it for a pod that is being resized, whose
// containers may still have more resources than its spec says. It must be called before the Holder is shared.
func (h *Holder) AtLeast(requests v1.ResourceList) {
	for name, q := range requests {
		if have, ok := h.requests[name]; !ok || q.Cmp(have) > 0 {
			h.requests[name] = q
		}
	}
}

// Admit decides whether a pod may run in addition to the pods in the list others. This list must contain the
// admitted pods that have not ended. Admit returns nil if the pod may run.
func Admit(pod *Holder, others []*Holder, n Node) *Rejection {
	for _, check := range []func(*Holder, []*Holder, Node) *Rejection{checkSize, checkPressure, rejectDuringShutdown, checkOperatingSystem,
		checkGroups, checkNodeName, checkSelector, checkAffinity, checkTaints, checkSysctls, checkAppArmor, checkSELinux, checkFeatures,
		checkDuplicate, checkPorts, checkRealTime, checkResources} {
		if r := check(pod, others, n); r != nil {
			return r
		}
	}
	return nil
}

// checkSize rejects a pod whose spec the node does not know, because the pod is too large. A kubelet has no such limit.
func checkSize(h *Holder, _ []*Holder, _ Node) *Rejection {
	if podspec.IsTooLarge(h.Pod) {
		return newRejection("PodTooLarge", "The pod has more than 1000 containers, or it would need too much memory of this node, "+
			"alone or together with all other pods")
	}
	return nil
}

// checkFeatures rejects a pod that requires a feature that the Node does not declare (KEP-5328). A kubelet does the
// same.
func checkFeatures(h *Holder, _ []*Holder, n Node) *Rejection {
	if slices.Contains(n.Alpha, config.GateBindOptions) {
		return nil
	}
	for _, c := range podspec.Containers(&h.Pod.Spec) {
		if slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return len(m.BindMountOptions) > 0 }) {
			return newRejection("PodFeatureUnsupported", "Pod requires node features that are not available: %s", config.GateBindOptions)
		}
	}
	return nil
}

// checkPressure rejects pods that could increase a pressure on the node. If memory pressure is the only
// pressure, it rejects best-effort pods that do not tolerate it. Under any other pressure, it rejects all
// pods that are not critical.
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-conditions
func checkPressure(h *Holder, _ []*Holder, n Node) *Rejection {
	if len(n.Pressures) == 0 || Critical(h.Pod) {
		return nil
	}
	if len(n.Pressures) == 1 && n.Pressures[0] == v1.NodeMemoryPressure {
		short := v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}
		if demand.Class(h.Pod) != v1.PodQOSBestEffort ||
			corev1.TolerationsTolerateTaint(logr.Discard(), h.Pod.Spec.Tolerations, &short, true) {
			return nil
		}
	}
	return newRejection("Evicted", "The node had condition: %v. ", n.Pressures)
}

// rejectDuringShutdown rejects pods while the machine is shutting down.
// https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/
func rejectDuringShutdown(_ *Holder, _ []*Holder, n Node) *Rejection {
	if n.ShuttingDown {
		return newRejection("NodeShutdown", "Pod was rejected as the node is shutting down.")
	}
	return nil
}

func checkOperatingSystem(h *Holder, _ []*Holder, n Node) *Rejection {
	pod := h.Pod
	if os := pod.Spec.OS; os != nil && string(os.Name) != n.OS {
		return newRejection("PodOSNotSupported", "Pod's operating system field doesn't match this node's (%s)", n.OS)
	}
	for key, have := range map[string]string{v1.LabelOSStable: n.OS, v1.LabelArchStable: n.Arch} {
		if want, ok := pod.Spec.NodeSelector[key]; ok && want != have {
			return newRejection("PodOSSelectorNodeLabelDoesNotMatch", "Pod selects nodes with %s=%s, this node's is %s", key, want, have)
		}
	}
	return nil
}

func checkNodeName(h *Holder, _ []*Holder, n Node) *Rejection {
	if to := h.Pod.Spec.NodeName; to != "" && to != n.Name {
		return newRejection("NodeName", "Predicate NodeName failed: the pod is bound to node %s, this is %s", to, n.Name)
	}
	return nil
}

// checkSelector rejects a pod whose nodeSelector does not match the node's labels.
func checkSelector(h *Holder, _ []*Holder, n Node) *Rejection {
	wanted := h.Pod.Spec.NodeSelector
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		have, ok := n.Labels[key]
		if key == v1.LabelOSStable || key == v1.LabelArchStable { // checked above
			continue
		}
		if want := wanted[key]; !ok || have != want {
			return newRejection(nodeAffinity, "Predicate NodeAffinity failed: node didn't match Pod's node selector %s=%s", key, want)
		}
	}
	return nil
}

// checkAffinity rejects a pod whose required node affinity does not match the node's labels and name. Only
// the scheduler uses preferred affinities.
// https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity
func checkAffinity(h *Holder, _ []*Holder, n Node) *Rejection {
	a := h.Pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{}}}
	maps.Copy(node.Labels, n.Labels)
	// These labels are added because the node may not be registered yet.
	maps.Copy(node.Labels, map[string]string{v1.LabelOSStable: n.OS, v1.LabelArchStable: n.Arch})
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(h.Pod).Match(node); err != nil || !ok {
		return newRejection(nodeAffinity, "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector")
	}
	return nil
}

// checkTaints rejects a pod from the API server if a NoExecute taint of the node would evict it at once.
// Static pods belong to the node and ignore its taints.
// https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
func checkTaints(h *Holder, _ []*Holder, n Node) *Rejection {
	if h.Pod.Annotations[keys.ConfigSource] != keys.SourceAPI {
		return nil
	}
	noExecute := func(t *v1.Taint) bool { return t.Effect == v1.TaintEffectNoExecute }
	if t, ok := corev1.FindMatchingUntoleratedTaint(logr.Discard(), n.Taints, h.Pod.Spec.Tolerations, noExecute, true); ok {
		return newRejection(taintToleration, "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate: %s",
			t.ToString())
	}
	return nil
}

func checkDuplicate(h *Holder, others []*Holder, _ Node) *Rejection {
	pod := h.Pod
	for _, other := range others {
		if o := other.Pod; o.UID != pod.UID && o.Name == pod.Name && o.Namespace == pod.Namespace {
			return newRejection("DuplicatePodName", "another pod of that name and namespace, with UID %s, runs on this node", o.UID)
		}
	}
	return nil
}

// checkPorts rejects a pod with a host port of another pod. Its time is proportional to the number of ports, not to the number of pairs,
// because users choose both pods and the caller may hold a lock.
func checkPorts(h *Holder, others []*Holder, _ Node) *Rejection {
	for _, o := range others {
		if o.Pod.UID == h.Pod.UID {
			continue
		}
		few, many := h, o
		if len(few.ports) > len(many.ports) {
			few, many = many, few
		}
		if i := slices.IndexFunc(few.ports, many.ports.Conflicts); i >= 0 {
			return newRejection("NodePorts", "Predicate NodePorts failed: host port %d/%s is taken by pod %s/%s", few.ports[i].Number,
				few.ports[i].Protocol, o.Pod.Namespace, o.Pod.Name)
		}
	}
	return nil
}

func checkResources(h *Holder, others []*Holder, n Node) *Rejection {
	for _, s := range findShortages(h, others, n) {
		return newRejection("OutOf"+string(s.name), "Node didn't have enough resource: %s, requested: %v, used: %v, capacity: %v", s.name,
			s.requested, s.used, s.capacity)
	}
	return nil
}

// A shortage describes a resource of which a pod requests more than is free. Amounts of CPU are in thousandths of a
// CPU. Amounts of other resources are in their usual unit.
type shortage struct {
	name                      v1.ResourceName
	requested, used, capacity int64
}

// findShortages returns the resources of which the pod requests more than the other pods leave free, sorted by
// name.
func findShortages(h *Holder, others []*Holder, n Node) (out []shortage) {
	if n.Allocatable == nil {
		return nil
	}
	used := usedBy(h, others)
	for _, name := range slices.Sorted(maps.Keys(h.requests)) {
		have, ok := n.Allocatable[name]
		q := h.requests[name]
		if q.IsZero() || !ok && (name == v1.ResourcePods || IsExtended(name)) {
			continue
		}
		taken := used[name]
		sum := taken.DeepCopy()
		sum.Add(q)
		if sum.Cmp(have) > 0 {
			out = append(out, shortage{name, amountOf(name, q), amountOf(name, taken), amountOf(name, have)})
		}
	}
	return out
}

// usedBy returns the sums of the requests of other pods, for the resources that the pod requests. For each of these pods, it visits only
// the smaller of two lists: the requests of that pod, and the requests of h.
func usedBy(h *Holder, others []*Holder) v1.ResourceList {
	used := v1.ResourceList{}
	for _, o := range others {
		few, many := h.requests, o.requests
		if len(few) > len(many) {
			few, many = many, few
		}
		for name := range few {
			if _, both := many[name]; both && o.Pod.UID != h.Pod.UID {
				sum := used[name]
				sum.Add(o.requests[name])
				used[name] = sum
			}
		}
	}
	return used
}

// IsExtended reports whether a resource is an extended resource. Requests for an extended resource that the
// node does not have are not checked, as in a kubelet. So a pod that bypassed the scheduler, or that started
// before its device plugin, runs without the resource.
// https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#extended-resources
func IsExtended(name v1.ResourceName) bool {
	s := string(name)
	return strings.Contains(s, "/") && !strings.Contains(s, v1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(s, v1.DefaultResourceRequestsPrefix)
}

func amountOf(name v1.ResourceName, q resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}
