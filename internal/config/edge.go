package config

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// These identify an EdgeConfiguration document.
const (
	EdgeAPIVersion = "islet.dev/v1beta1"
	EdgeKind       = "EdgeConfiguration"

	// earlierEdgeAPIVersion is the version of islet 0.1. Its fields are the same, so that its documents are read as those of
	// EdgeAPIVersion. A field that changes later is converted where decode accepts this version.
	earlierEdgeAPIVersion = "islet.dev/v1alpha1"
)

// EdgeConfiguration has the settings that a KubeletConfiguration does not have. Load validates
// durations, paths and names. Relative paths are relative to the directory of the file.
type EdgeConfiguration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// ShimPods is the maximum number of pods in one shim process. When a shim dies, all its pods
	// restart. With 1, each pod has its own shim.
	ShimPods int `json:"shimPods,omitempty"`
	// OCIRuntime is the name or absolute path of the OCI runtime. If OCIRuntime is empty, islet tries three runtimes
	// in this order: the crun that is shipped with islet, the host's crun, and runc. It uses the first one that
	// works on this host.
	OCIRuntime string `json:"ociRuntime,omitempty"`
	// RuntimeHandlers are additional OCI runtimes and shims, by the handler names of
	// RuntimeClasses.
	RuntimeHandlers []RuntimeHandler `json:"runtimeHandlers,omitempty"`
	// BridgeName is the bridge interface that the built-in network creates.
	BridgeName string `json:"bridgeName,omitempty"`
	// NetworkPlugin selects the pods' network: "auto", "cni" or "built-in". With auto, islet uses a
	// CNI configuration as soon as one exists. Until then it uses the built-in network. With auto,
	// islet also ignores configurations that podman, CRI-O or nerdctl installed for themselves. A
	// standalone node uses the built-in network while plugins of the configuration are missing.
	// With cni, islet uses only CNI configurations, no matter which program installed them. Without
	// a CNI configuration, the node is not ready. With built-in, islet ignores CNI configurations.
	NetworkPlugin string `json:"networkPlugin,omitempty"`
	// CNIConfDir is the directory of CNI configurations. The first file in lexical order is used.
	CNIConfDir string `json:"cniConfDir,omitempty"`
	// CNIBinDirs are the directories of CNI plugins that are not built into islet.
	CNIBinDirs []string `json:"cniBinDirs,omitempty"`
	// RegistryConfigDir contains a directory for each registry host, in containerd's layout. Its
	// hosts.toml configures mirrors, plain HTTP and certificates.
	RegistryConfigDir string `json:"registryConfigDir,omitempty"`
	// ImagesDir is the directory from which image archives are imported. The default is the subdirectory images of the
	// state directory.
	ImagesDir string `json:"imagesDir,omitempty"`
	// CRISocket is the socket at which islet serves CRI, for crictl and kubeadm. If it is empty,
	// islet serves no CRI socket, unless containerRuntimeEndpoint is a socket in the run directory.
	CRISocket string `json:"criSocket,omitempty"`
	// HoldPodsFor is the time for which pods continue to run after the control plane has lost them.
	// A control plane loses pods if it is restored or re-created, or if the Node is deleted. With
	// 0, they run until the command islet accept ends them.
	HoldPodsFor metav1.Duration `json:"holdPodsFor,omitzero"`
	// StatusPagePort is the port on 127.0.0.1 of a status page for browsers on the device. If it is
	// set, port 10250 also serves the page at /page/. If it is 0, there is no page.
	StatusPagePort int `json:"statusPagePort,omitempty"`
	// PodLogQuota limits the logs of all containers of a pod together, as a quantity of bytes such
	// as 20Mi. Beyond the quota, the oldest rotated files are removed. If it is empty, only
	// containerLogMaxSize and containerLogMaxFiles limit the logs.
	PodLogQuota string `json:"podLogQuota,omitempty"`
	// FlashBudget is the number of bytes that the node's software and its pods may write to block
	// devices per day, as a quantity such as 500Mi. Beyond the budget, islet warns and delays work
	// that can wait. If it is empty, there is no budget.
	FlashBudget string `json:"flashBudget,omitempty"`
	// Devices are the resources through which containers use devices of the host. A device belongs
	// to the first resource that matches it.
	Devices []DeviceClass `json:"devices,omitempty"`
	// RealTime defines which pods may use real-time scheduling.
	RealTime RealTime `json:"realTime,omitzero"`
	// Configuration defines the source of the node's configuration and the conditions of its trial.
	Configuration Following `json:"configuration,omitzero"`
	// Update defines which other versions of islet the node installs.
	Update Updates `json:"update,omitzero"`
	// Bundle defines which bundles the node accepts, and the conditions for keeping a new one.
	Bundle Bundles `json:"bundle,omitzero"`
	// TPM is used only if the command islet key seal has sealed the key of the database.
	TPM TPM `json:"tpm,omitzero"`
	// K3s connects the node to a cluster of k3s that it has joined with the command islet join.
	K3s K3s `json:"k3s,omitzero"`
}

// K3s defines how a node keeps its place in a cluster of k3s.
type K3s struct {
	// Directory contains the node's addresses and certificates of the cluster, which islet join has written. The node renews the
	// certificates there, and opens a tunnel to each server of the cluster. Without --kubeconfig and --bootstrap-kubeconfig, it also
	// uses the kubeconfig of this directory. If it is empty, the node does none of this.
	Directory string `json:"directory,omitempty"`
}

// TPM defines how a sealed key of the database is opened.
type TPM struct {
	// Device is the path of the TPM 2.0: a character device, or the unix socket of an emulator.
	Device string `json:"device,omitempty"`
	// Policies is the directory with the signatures of policies, for a key that was sealed with --policy-key. The name
	// of a file is the digest of the policy in hexadecimal, and .sig.
	Policies string `json:"policies,omitempty"`
}

// Updates defines which archives of islet a node accepts, and which archive it follows.
type Updates struct {
	// Keys are the public keys of the signers of archives, as "islet-ed25519 BASE64". Without keys,
	// the node accepts no archive.
	Keys []string `json:"keys,omitempty"`
	// Threshold is the number of different Keys that must have signed an archive.
	Threshold int32 `json:"threshold,omitempty"`
	// Archive is the archive that the node follows, as an absolute path or an https URL. If the
	// archive contains a newer version, the node tries that version. If Archive is empty, the node
	// follows no archive.
	Archive string `json:"archive,omitempty"`
	// Index is the index of a staged rollout that the node follows instead of Archive, as an absolute path or an https
	// URL. The archives must be in the same directory.
	Index string `json:"index,omitempty"`
	// IndexKeys are the public keys of the signers of Index. One of them must have signed it. Without IndexKeys, Keys and
	// Threshold apply to Index too. An archive always needs signatures by Keys.
	IndexKeys []string `json:"indexKeys,omitempty"`
	// The interval between two checks of Archive or Index.
	Every metav1.Duration `json:"every,omitzero"`
}

// Bundles defines which bundles a node accepts, and the conditions for keeping a new one.
type Bundles struct {
	// Keys are the public keys of the signers of bundles, as "islet-ed25519 BASE64". Without keys, the
	// node accepts no bundle.
	Keys []string `json:"keys,omitempty"`
	// Threshold is the number of different Keys that must have signed a bundle.
	Threshold int32 `json:"threshold,omitempty"`
	// Source is the bundle that the node follows: the https URL of a tar, the https URL of a directory with a slash at the
	// end, or oci:// and a reference in a registry. If its number is greater than the numbers of all earlier bundles with its name,
	// the node tries the bundle. If Source is empty, the node follows no bundle.
	Source string `json:"source,omitempty"`
	// Every is the interval between two checks of Source.
	Every metav1.Duration `json:"every,omitzero"`
	// Report is the https URL to which the node sends its signed state with POST, once and whenever a trial of a bundle has
	// begun or ended. If it is empty, the node sends nothing.
	Report string `json:"report,omitempty"`
	// HealthyFor is the time for which the pods must be Ready without interruption.
	HealthyFor metav1.Duration `json:"healthyFor,omitzero"`
	// Deadline is the maximum duration of a trial. The trial fails if the pods have not been Ready for
	// HealthyFor before the deadline.
	Deadline metav1.Duration `json:"deadline,omitzero"`
	// Medium defines which sticks the node reads by itself.
	Medium BundleMedium `json:"medium,omitzero"`
}

// BundleMedium defines which sticks a node reads by itself.
type BundleMedium struct {
	// Label is the label of the file systems that the node mounts read-only to look for bundles. If it is empty, the node
	// mounts no stick.
	Label string `json:"label,omitempty"`
	// Result makes the node write the file islet-NODE.json with its state to the stick.
	Result bool `json:"result,omitempty"`
	// LED is the name of an LED in /sys/class/leds. It blinks while the node needs the stick, is on when the bundle is in
	// use, and beats when the bundle is not in use.
	LED string `json:"led,omitempty"`
}

// Following defines the source of a node's configuration, and the conditions for keeping a new one.
type Following struct {
	// ConfigMap is the ConfigMap that the node follows, as namespace/name or a name in kube-system.
	// Its key kubelet is a KubeletConfiguration, its key edge an EdgeConfiguration. If ConfigMap is
	// empty, the node follows the ConfigMap that the Node's annotation keys.FollowConfigMap names.
	// If there is no annotation either, the node follows no ConfigMap.
	ConfigMap string `json:"configMap,omitempty"`
	// HealthyFor is the time for which the node must stay as healthy as before the trial.
	HealthyFor metav1.Duration `json:"healthyFor,omitzero"`
	// Deadline is the maximum duration of a trial. The trial fails if the node has not stayed
	// healthy for HealthyFor before the deadline.
	Deadline metav1.Duration `json:"deadline,omitzero"`
	// Consent lists fields that sent configurations may change although they belong to the node.
	Consent []string `json:"consent,omitempty"`
}

// A DeviceClass makes devices of the host available as an extended resource. Containers request it like the resource
// of a device plugin.
// https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#extended-resources
type DeviceClass struct {
	// Resource is the name of the resource, such as islet.dev/serial.
	Resource string `json:"resource"`
	// Match contains the conditions for devices. A device belongs to the resource if it matches at
	// least one element.
	Match []DeviceMatch `json:"match"`
	// Unit defines one unit of the resource. "node": one device node. "device": all device nodes of
	// one piece of hardware, such as a camera. "all": all device nodes that match.
	Unit string `json:"unit,omitempty"`
	// Permissions is the access of a container: a subset of r (read), w (write) and m (mknod). The default is rw.
	Permissions string `json:"permissions,omitempty"`
	// Group is the group of the device nodes in the container, as a number or a name on the host. The container's
	// processes get it as a supplementary group. The default is the device node's group on the host, unless that is
	// root's group.
	Group *intstr.IntOrString `json:"group,omitempty"`
	// ContainerPath is the path of the device node in the container. If there are several device nodes, they are
	// numbered: /dev/serial0, /dev/serial1. By default each device node has its path on the host.
	ContainerPath string `json:"containerPath,omitempty"`
	// Shared is the maximum number of containers that use the same device at a time. 0 means 1.
	Shared int `json:"shared,omitempty"`
}

// A DeviceMatch selects devices that fulfil all given conditions.
type DeviceMatch struct {
	// Paths are patterns of paths below /dev. One of them must match the device node or a symbolic
	// link to it. * matches any text without a slash, ? matches any character, and [a-z] matches
	// one of several characters.
	Paths []string `json:"paths,omitempty"`
	// USB matches the descriptors of a USB device.
	USB *USBMatch `json:"usb,omitempty"`
	// Driver is the kernel driver of the device or of one of its parents.
	Driver string `json:"driver,omitempty"`
	// Subsystem is the kernel's subsystem of the device: tty, video4linux, gpio, i2c-dev, spidev.
	Subsystem string `json:"subsystem,omitempty"`
	// Attributes are patterns for the content of files, by the file's name. Each file is read from
	// the device's directory in /sys. If the file does not exist there, it is read from the
	// directory of the nearest parent device that has the file.
	Attributes map[string]string `json:"attributes,omitempty"`
}

// A USBMatch selects USB devices.
type USBMatch struct {
	Vendor  string `json:"vendor,omitempty"`  // four hexadecimal digits, as lsusb shows them
	Product string `json:"product,omitempty"` // four hexadecimal digits too
	Serial  string `json:"serial,omitempty"`  // a pattern
}

// A RuntimeHandler is the runtime of a RuntimeClass: either an OCI runtime or a containerd shim.
// https://kubernetes.io/docs/concepts/containers/runtime-class/
type RuntimeHandler struct {
	// Name is the handler in a RuntimeClass.
	Name string `json:"name"`
	// OCIRuntime is the name or absolute path of a program with runc's command line.
	OCIRuntime string `json:"ociRuntime,omitempty"`
	// Shim is the name or absolute path of a containerd shim, such as containerd-shim-kata-v2.
	Shim string `json:"shim,omitempty"`
	// ShimConfig is the absolute path of the shim's configuration file. If it is empty, islet
	// passes no path, and the shim uses its default.
	ShimConfig string `json:"shimConfig,omitempty"`
}

// pathFields returns the fields that contain paths, which may be relative to the directory of the file.
func (e *EdgeConfiguration) pathFields() []*string {
	p := []*string{&e.CNIConfDir, &e.RegistryConfigDir, &e.ImagesDir, &e.CRISocket, &e.TPM.Device, &e.TPM.Policies, &e.K3s.Directory}
	for i := range e.CNIBinDirs {
		p = append(p, &e.CNIBinDirs[i])
	}
	return p
}
