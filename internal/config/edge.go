package config

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// These identify an EdgeConfiguration document.
const (
	EdgeAPIVersion = "islet.dev/v1alpha1"
	EdgeKind       = "EdgeConfiguration"
)

// EdgeConfiguration has the settings that a KubeletConfiguration does not have. Load validates
// durations, paths and names. Relative paths are relative to the directory of the file.
type EdgeConfiguration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// ShimPods is how many pods share one shim process. When a shim dies, all its pods restart. 1
	// gives each pod its own shim.
	ShimPods int `json:"shimPods,omitempty"`
	// OCIRuntime is the name or absolute path of the OCI runtime. Empty: crun if it works on this
	// host, else runc.
	OCIRuntime string `json:"ociRuntime,omitempty"`
	// RuntimeHandlers are additional OCI runtimes and shims, by the handler names of
	// RuntimeClasses.
	RuntimeHandlers []RuntimeHandler `json:"runtimeHandlers,omitempty"`
	// BridgeName is the bridge interface that the built-in network creates.
	BridgeName string `json:"bridgeName,omitempty"`
	// NetworkPlugin selects the pods' network. auto: a CNI configuration if there is one, also one
	// that appears later, else the built-in network. Configurations that podman, CRI-O or nerdctl
	// installed for themselves are ignored. A standalone node uses the built-in network while
	// plugins of the configuration are missing. cni: a CNI configuration only, of any program;
	// without one the node is not ready. built-in: CNI configurations are ignored.
	NetworkPlugin string `json:"networkPlugin,omitempty"`
	// CNIConfDir is the directory of CNI configurations. The first one in lexical order is used.
	CNIConfDir string `json:"cniConfDir,omitempty"`
	// CNIBinDirs are the directories of CNI plugins that are not built into islet.
	CNIBinDirs []string `json:"cniBinDirs,omitempty"`
	// RegistryConfigDir contains a directory per registry host with a hosts.toml (mirrors, plain
	// HTTP, certificates), in containerd's layout.
	RegistryConfigDir string `json:"registryConfigDir,omitempty"`
	// ImagesDir is the directory from which image archives are imported. Empty: images in the state
	// directory.
	ImagesDir string `json:"imagesDir,omitempty"`
	// CRISocket is the socket at which islet serves CRI, for crictl and kubeadm. Empty: none,
	// unless containerRuntimeEndpoint is a socket in the run directory.
	CRISocket string `json:"criSocket,omitempty"`
	// HoldPodsFor is how long pods continue to run that a control plane has lost, because it was
	// restored or re-created, or because the Node was deleted. 0: until islet accept.
	HoldPodsFor metav1.Duration `json:"holdPodsFor,omitzero"`
	// StatusPagePort is the port on 127.0.0.1 of a status page for browsers on the device. With it,
	// port 10250 also serves the page at /page/. 0: no page.
	StatusPagePort int `json:"statusPagePort,omitempty"`
	// PodLogQuota limits the logs of all containers of a pod together, as a quantity of bytes such
	// as 20Mi. Beyond it, the oldest rotated files are removed. Empty: no limit besides
	// containerLogMaxSize and containerLogMaxFiles.
	PodLogQuota string `json:"podLogQuota,omitempty"`
	// FlashBudget is how many bytes the node's software and its pods may write to block devices per
	// day, as a quantity such as 500Mi. Beyond it, islet warns and delays work that can wait.
	// Empty: no budget.
	FlashBudget string `json:"flashBudget,omitempty"`
	// Devices are the resources through which containers use devices of the host. A device belongs
	// to the first resource that matches it.
	Devices []DeviceClass `json:"devices,omitempty"`
	// Configuration is how the node receives configurations.
	Configuration Following `json:"configuration,omitzero"`
	// Update is how the node receives other versions of islet.
	Update Updates `json:"update,omitzero"`
}

// Updates says which archives of islet a node accepts.
type Updates struct {
	// Keys are the public keys of the signers of archives, as "islet-ed25519 BASE64". Empty: no
	// archive is accepted.
	Keys []string `json:"keys,omitempty"`
	// Threshold is how many different Keys must have signed an archive.
	Threshold int32 `json:"threshold,omitempty"`
	// Archive is the archive that the node follows, an absolute path or an https URL. The node
	// tries a newer version there. Empty: none.
	Archive string `json:"archive,omitempty"`
	// Every is the period of checking Archive.
	Every metav1.Duration `json:"every,omitzero"`
}

// Following says where a node's configuration comes from, and the conditions for keeping it.
type Following struct {
	// ConfigMap is the one that the node follows, as namespace/name or a name in kube-system. Its
	// key kubelet is a KubeletConfiguration, its key edge an EdgeConfiguration. Empty: the one in
	// the Node's annotation keys.FollowConfigMap, if any.
	ConfigMap string `json:"configMap,omitempty"`
	// HealthyFor is how long the node must be continuously as healthy as before.
	HealthyFor metav1.Duration `json:"healthyFor,omitzero"`
	// Deadline is when a trial fails that has not become healthy for HealthyFor.
	Deadline metav1.Duration `json:"deadline,omitzero"`
	// Consent lists fields that belong to the node and that sent configurations may change
	// nevertheless.
	Consent []string `json:"consent,omitempty"`
}

// A DeviceClass makes devices of the host available as an extended resource, which containers
// request as they do that of a device plugin.
// https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#extended-resources
type DeviceClass struct {
	// Resource is the name of the resource, such as islet.dev/serial.
	Resource string `json:"resource"`
	// Match selects the devices: those that fit at least one element.
	Match []DeviceMatch `json:"match"`
	// Unit is what one unit of the resource is. node: one device node. device: all nodes of one
	// piece of hardware, such as a camera. all: all nodes that match.
	Unit string `json:"unit,omitempty"`
	// Permissions of a container: a subset of r (read), w (write) and m (mknod). Empty: rw.
	Permissions string `json:"permissions,omitempty"`
	// Group is the group of the device nodes in the container, which its processes get as a
	// supplementary group: a number, or a name on the host. Nil: the node's group on the host,
	// unless that is root's.
	Group *intstr.IntOrString `json:"group,omitempty"`
	// ContainerPath is the path of the first device node in the container; further nodes are
	// numbered: /dev/serial0, /dev/serial1. Empty: the path on the host.
	ContainerPath string `json:"containerPath,omitempty"`
	// Shared is how many containers may use the same device at a time. 0 means 1.
	Shared int `json:"shared,omitempty"`
}

// A DeviceMatch selects devices that fulfil all given conditions.
type DeviceMatch struct {
	// Paths are patterns of paths below /dev. One of them must match the node or a symbolic link to
	// it. * matches any text without a slash, ? any character, [a-z] one of several characters.
	Paths []string `json:"paths,omitempty"`
	// USB matches the descriptors of a USB device.
	USB *USBMatch `json:"usb,omitempty"`
	// Driver is the kernel driver of the device or of one of its parents.
	Driver string `json:"driver,omitempty"`
	// Subsystem is the kernel's subsystem of the device: tty, video4linux, gpio, i2c-dev, spidev.
	Subsystem string `json:"subsystem,omitempty"`
	// Attributes are patterns for the content of files in the device's directory in /sys, or else
	// in that of its nearest parent that has the file.
	Attributes map[string]string `json:"attributes,omitempty"`
}

// A USBMatch selects USB devices.
type USBMatch struct {
	Vendor  string `json:"vendor,omitempty"`  // four hexadecimal digits, as lsusb shows them
	Product string `json:"product,omitempty"` // the same
	Serial  string `json:"serial,omitempty"`  // a pattern
}

// A RuntimeHandler is the runtime of a RuntimeClass: an OCI runtime or a containerd shim. Exactly
// one of the two is set. https://kubernetes.io/docs/concepts/containers/runtime-class/
type RuntimeHandler struct {
	// Name is the handler in a RuntimeClass.
	Name string `json:"name"`
	// OCIRuntime is the name or absolute path of a program with runc's command line.
	OCIRuntime string `json:"ociRuntime,omitempty"`
	// Shim is the name or absolute path of a containerd shim, such as containerd-shim-kata-v2.
	Shim string `json:"shim,omitempty"`
	// ShimConfig is the absolute path of the shim's configuration file. Empty: the shim finds one
	// by itself, or needs none.
	ShimConfig string `json:"shimConfig,omitempty"`
}

func defaultEdge() EdgeConfiguration {
	return EdgeConfiguration{
		APIVersion:        EdgeAPIVersion,
		Kind:              EdgeKind,
		ShimPods:          32,
		BridgeName:        "islet0",
		NetworkPlugin:     "auto",
		CNIConfDir:        "/etc/cni/net.d",
		CNIBinDirs:        []string{"/opt/cni/bin", "/usr/lib/cni"}, // the second is Debian's
		RegistryConfigDir: "/etc/containerd/certs.d",
		Configuration:     Following{HealthyFor: seconds(60), Deadline: seconds(180)},
		Update:            Updates{Threshold: 1, Every: seconds(24 * 3600)},
	}
}

// paths returns the fields whose relative paths are resolved.
func (e *EdgeConfiguration) paths() []*string {
	p := []*string{&e.CNIConfDir, &e.RegistryConfigDir, &e.ImagesDir, &e.CRISocket}
	for i := range e.CNIBinDirs {
		p = append(p, &e.CNIBinDirs[i])
	}
	return p
}
