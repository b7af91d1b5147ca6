package keys

import "k8s.io/kubelet/pkg/types"

// A kubelet marks pods that do not come from the API server with these annotations. The mirror pod
// of such a pod also has v1.MirrorPodAnnotationKey.
const (
	ConfigHash   = "kubernetes.io/config.hash"   // identifies the pod's content
	ConfigSource = "kubernetes.io/config.source" // the source of the pod
	ConfigSeen   = "kubernetes.io/config.seen"   // when a kubelet first saw the pod; ConfigHash does not depend on this time
)

// MirrorName is an annotation of stored events: the name of the involved pod in the API server, if it differs from that on this node.
const MirrorName = "islet.dev/mirror-name"

// These are the labels that a kubelet sets on sandboxes and containers. Tools read them.
const (
	PodName       = types.KubernetesPodNameLabel
	PodNamespace  = types.KubernetesPodNamespaceLabel
	PodUID        = types.KubernetesPodUIDLabel
	ContainerName = types.KubernetesContainerNameLabel
)

// These are the annotations that a kubelet sets on containers.
const (
	ContainerHash = "io.kubernetes.container.hash"
	RestartCount  = "io.kubernetes.container.restartCount"
	MessagePath   = "io.kubernetes.container.terminationMessagePath"
	MessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	GracePeriod   = "io.kubernetes.pod.terminationGracePeriod"
)

// The planner uses these annotations of sandboxes and containers to store state, and to pass options for which
// CRI has no field.
const (
	SpecHash         = "islet.dev/spec-hash" // of a sandbox: plan.SpecHash of the pod for which the sandbox was created
	Started          = "islet.dev/started"   // of a sandbox: when the pod first started, in seconds since 1970
	Manifest         = "islet.dev/pod"       // of a sandbox: its pod as JSON, for rebuilding a lost database
	Streak           = "islet.dev/streak"    // of a container: the number of consecutive crashes before this container
	Round            = "islet.dev/round"     // of a container: how often all containers were restarted before this container was created
	RestartResources = "islet.dev/anew"      // of a container: plan.Size.RestartResources
	MemoryRequest    = "islet.dev/memory"    // of a container: plan.Resources.MemoryRequest
	// PostStart, with any value, marks a container whose postStart hook islet runs: the container
	// counts as started only after the hook has returned.
	PostStart = "islet.dev/post-start"
	// RunAsNonRoot, with any value, in a container's configuration requests an error if the ID of the container's
	// user is 0. A kubelet can check only numeric users, because the ID of a named user is in the image's passwd
	// file.
	RunAsNonRoot = "islet.dev/run-as-non-root"
)

// These pod annotations request real-time scheduling for a container. Each key is a prefix, followed by the container's name.
const (
	Scheduler    = "scheduler.islet.dev/"     // such as "FIFO priority=20"
	IOPriority   = "io-priority.islet.dev/"   // such as "best-effort 0"
	LockedMemory = "locked-memory.islet.dev/" // bytes that each process may lock, as a quantity
	IsolatedCPUs = "isolated-cpus.islet.dev/" // "true": the container gets its exclusive CPUs from the isolated CPUs (isolcpus)
)

// islet passes the real-time settings of a container to the runtime in these annotations of the container's CRI configuration.
const (
	ContainerScheduler    = "islet.dev/scheduler"     // the value of the pod's annotation
	ContainerIOPriority   = "islet.dev/io-priority"   // the value of the pod's annotation
	ContainerLockedMemory = "islet.dev/locked-memory" // the value of the pod's annotation
	ContainerBusyLimit    = "islet.dev/busy-limit"    // a duration: see config.RealTime.BusyLimit
	ContainerBudget       = "islet.dev/rt-budget"     // a duration: CPU time in each period of the kernel's real-time budget
)

// islet passes these annotations of pods to network plugins as capability arguments.
const (
	IngressBandwidth = "kubernetes.io/ingress-bandwidth" // in bits per second, as a quantity
	EgressBandwidth  = "kubernetes.io/egress-bandwidth"
	IPs              = "islet.dev/ips" // comma-separated
	MAC              = "islet.dev/mac"
)

// DefaultContainer is an annotation of pods. It contains the name of the container that a command
// uses if the user names no container.
const DefaultContainer = "kubectl.kubernetes.io/default-container"

// A kubelet and controllers communicate through these annotations and taints of Nodes.
const (
	ControllerManagedAttachDetach = "volumes.kubernetes.io/controller-managed-attach-detach"
	ProvidedNodeIP                = "alpha.kubernetes.io/provided-node-ip"           // the value of --node-ip, for a cloud provider
	CloudUninitialized            = "node.cloudprovider.kubernetes.io/uninitialized" // a taint
)

// TooLarge is an annotation of a pod that is too large for the node. Package edge/kube has removed its spec.
const TooLarge = "islet.dev/too-large"

// These are the keys of dynamic configuration. The condition has the same type as in the kubelet's
// former dynamic configuration.
const (
	FollowConfigMap        = "islet.dev/config-map"           // an annotation of a Node: the ConfigMap in kube-system that the node follows
	ConfigurationStatus    = "islet.dev/configuration-status" // an annotation of a Node: a v1.NodeConfigStatus, written by the node
	ConfigurationCondition = "KubeletConfigOk"                // a Node condition type
)

// Package edge/twin uses these keys to detect that two machines have the same node name.
const (
	LeaseClaim         = "islet.dev/claim" // an annotation of a node's Lease: the machine that owns the node name
	LeaseTwin          = "islet.dev/twin"  // an annotation of a node's Lease: another machine that wants the node name
	DuplicateCondition = "DuplicateNode"   // a type of condition of a Node, and the reason in the events about it
)
