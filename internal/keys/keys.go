package keys

import "k8s.io/kubelet/pkg/types"

// Annotations by which a kubelet marks pods that it got from elsewhere than the API
// server. The mirror of such a pod has v1.MirrorPodAnnotationKey.
const (
	ConfigHash   = "kubernetes.io/config.hash"   // names the pod's content
	ConfigSource = "kubernetes.io/config.source" // where it comes from
	ConfigSeen   = "kubernetes.io/config.seen"   // when a kubelet first saw it; it says nothing of the pod
)

// Labels of sandboxes and containers: the kubelet's, so that tools that know it find
// their way.
const (
	PodName       = types.KubernetesPodNameLabel
	PodNamespace  = types.KubernetesPodNamespaceLabel
	PodUID        = types.KubernetesPodUIDLabel
	ContainerName = types.KubernetesContainerNameLabel
)

// Annotations of containers: the kubelet's.
const (
	ContainerHash = "io.kubernetes.container.hash"
	RestartCount  = "io.kubernetes.container.restartCount"
	MessagePath   = "io.kubernetes.container.terminationMessagePath"
	MessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	GracePeriod   = "io.kubernetes.pod.terminationGracePeriod"
)

// Annotations of sandboxes and containers: the planner's own facts, and what the CRI
// has no field for.
const (
	SpecHash = "islet.dev/spec-hash" // of a sandbox: plan.SpecHash of the pod that it was made for
	Started  = "islet.dev/started"   // of a sandbox: when the pod first started, seconds since 1970
	Manifest = "islet.dev/pod"       // of a sandbox: its pod as JSON, of which the store can be made anew
	Streak   = "islet.dev/streak"    // of a container: crashes in a row before it
	Round    = "islet.dev/round"     // of a container: how often all containers were restarted before it
	Anew     = "islet.dev/anew"      // of a container: plan.Size.Anew, the resources it was made with that only a new one can have otherwise
	// PostStart, with any value, marks a container whose postStart hook islet runs: it
	// has started only once the hook has returned.
	PostStart = "islet.dev/post-start"
	// RunAsNonRoot, with any value, on a container's configuration asks for an error if
	// its user turns out to have the ID 0. A kubelet can check numbers, but only who
	// reads the image's passwd knows a name.
	RunAsNonRoot = "islet.dev/run-as-non-root"
)

// Annotations of pods that become capability arguments of network plugins.
const (
	IngressBandwidth = "kubernetes.io/ingress-bandwidth" // bits per second, as a quantity
	EgressBandwidth  = "kubernetes.io/egress-bandwidth"
	IPs              = "islet.dev/ips" // comma-separated
	MAC              = "islet.dev/mac"
)

// DefaultContainer is an annotation of pods: the container that is meant when a
// command names none.
const DefaultContainer = "kubectl.kubernetes.io/default-container"

// Annotations and taints of Nodes, by which a kubelet speaks to controllers.
const (
	ControllerManagedAttachDetach = "volumes.kubernetes.io/controller-managed-attach-detach"
	ProvidedNodeIP                = "alpha.kubernetes.io/provided-node-ip"           // --node-ip, to a cloud provider
	CloudUninitialized            = "node.cloudprovider.kubernetes.io/uninitialized" // a taint: the cloud provider has yet to see the Node
)

// How a node takes a configuration that it is sent. The condition is the kubelet's that had one.
const (
	FollowConfigMap        = "islet.dev/config-map"           // an annotation of a Node: the ConfigMap in kube-system that it follows
	ConfigurationStatus    = "islet.dev/configuration-status" // the annotation in which a Node shows a v1.NodeConfigStatus
	ConfigurationCondition = "KubeletConfigOk"                // a type of condition of a Node
)

// Package edge/twin uses these to tell two machines with the same node name apart.
const (
	LeaseClaim         = "islet.dev/claim" // an annotation of a node's Lease: the machine that has the name
	LeaseTwin          = "islet.dev/twin"  // an annotation of a node's Lease: another machine that would have it
	DuplicateCondition = "DuplicateNode"   // a type of condition of a Node, and the reason of the events about it
)
