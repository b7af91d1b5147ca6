package config

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The identity of an EdgeConfiguration document.
const (
	EdgeAPIVersion = "islet.dev/v1alpha1"
	EdgeKind       = "EdgeConfiguration"
)

// EdgeConfiguration is what islet can be told beyond a KubeletConfiguration.
// Durations, paths and names are checked by Load; relative paths are relative
// to the directory of the file.
type EdgeConfiguration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// ShimPods bounds how many pods share one shim process, and so how many
	// pods restart when a shim dies. 1 gives each pod its own.
	ShimPods int `json:"shimPods,omitempty"`
	// OCIRuntime is the name or absolute path of the OCI runtime. Empty: crun
	// where it works on this host, else runc.
	OCIRuntime string `json:"ociRuntime,omitempty"`
	// RuntimeHandlers are further OCI runtimes and shims, by the names that RuntimeClasses
	// have for them.
	RuntimeHandlers []RuntimeHandler `json:"runtimeHandlers,omitempty"`
	// BridgeName is the network interface that the built-in network makes.
	BridgeName string `json:"bridgeName,omitempty"`
	// NetworkPlugin says where pods get their network from. auto: from a CNI
	// configuration where there is one, which takes over when it appears, else from
	// the built-in network. Configurations that podman, CRI-O or nerdctl installed for
	// themselves do not count; and a node in no cluster uses the built-in network while
	// plugins of the configuration are missing. cni: from a CNI configuration only, of
	// whatever program; until there is one the node is not ready. built-in: CNI configurations are not looked at.
	NetworkPlugin string `json:"networkPlugin,omitempty"`
	// CNIConfDir is searched for a network configuration; the first in lexical
	// order replaces the built-in network.
	CNIConfDir string `json:"cniConfDir,omitempty"`
	// CNIBinDirs are searched for plugins that islet has not built in.
	CNIBinDirs []string `json:"cniBinDirs,omitempty"`
	// RegistryConfigDir holds a directory per registry host with a hosts.toml:
	// mirrors, plain HTTP, certificates; containerd's layout.
	RegistryConfigDir string `json:"registryConfigDir,omitempty"`
	// ImagesDir is the inbox for image archives. Empty: images under the state
	// directory.
	ImagesDir string `json:"imagesDir,omitempty"`
	// CRISocket is where the runtime is served for crictl and kubeadm. Empty: it
	// is not, unless containerRuntimeEndpoint names a socket in the run directory.
	CRISocket string `json:"criSocket,omitempty"`
	// HoldPodsFor is how long pods run on that a control plane has lost: one that
	// was restored or re-created, or that deleted the Node. 0: until islet accept.
	HoldPodsFor metav1.Duration `json:"holdPodsFor,omitzero"`
	// StatusPagePort is where a page for browsers on the device shows how the node is, on
	// 127.0.0.1; with it port 10250 has the page too, at /page/. 0: there is none.
	StatusPagePort int `json:"statusPagePort,omitempty"`
	// PodLogQuota bounds the logs of a pod, of all its containers together, as a quantity
	// of bytes such as 20Mi: beyond it the oldest rotated files go. Empty: no bound but
	// containerLogMaxSize and containerLogMaxFiles.
	PodLogQuota string `json:"podLogQuota,omitempty"`
	// FlashBudget is what the node's software and its pods may write to block devices a
	// day, as a quantity of bytes such as 500Mi. Beyond it islet warns, and does later what
	// can wait. Empty: no budget.
	FlashBudget string `json:"flashBudget,omitempty"`
	// Devices are the resources that devices of the host are given to containers as. A
	// device belongs to the first of them that matches it.
	Devices []DeviceClass `json:"devices,omitempty"`
	// Configuration is how the node takes a configuration that it is sent.
	Configuration Following `json:"configuration,omitzero"`
	// Update is how the node takes another version of islet.
	Update Updates `json:"update,omitzero"`
}

// Updates says whose archives of islet a node takes.
type Updates struct {
	// Keys are those of who signs archives, as "islet-ed25519 BASE64". Empty: none is taken.
	Keys []string `json:"keys,omitempty"`
	// Threshold is how many different ones of Keys have to have signed an archive.
	Threshold int32 `json:"threshold,omitempty"`
	// Archive is one that the node follows, the absolute path of a file or an https URL: a
	// newer version that is found there is tried. Empty: none is.
	Archive string `json:"archive,omitempty"`
	// Every is how often that is looked for.
	Every metav1.Duration `json:"every,omitzero"`
}

// Following says from where a node takes a configuration, and what it makes sure of before
// it keeps it.
type Following struct {
	// ConfigMap is one that the node follows, as namespace/name or a name in kube-system.
	// Its key kubelet holds a KubeletConfiguration, its key edge an EdgeConfiguration.
	// Empty: the one that the Node's annotation keys.FollowConfigMap names, if any.
	ConfigMap string `json:"configMap,omitempty"`
	// HealthyFor is how long the node must be as well as before, without a break.
	HealthyFor metav1.Duration `json:"healthyFor,omitzero"`
	// Deadline is when a configuration has failed that did not get that far.
	Deadline metav1.Duration `json:"deadline,omitzero"`
	// Consent names fields that what the node is sent may change though they belong to it.
	Consent []string `json:"consent,omitempty"`
}

// A DeviceClass makes devices of the host a resource that containers ask for, as they do
// for those of a device plugin.
// https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#extended-resources
type DeviceClass struct {
	// Resource is its name, such as islet.dev/serial.
	Resource string `json:"resource"`
	// Match says which devices it has: those that fit one of them.
	Match []DeviceMatch `json:"match"`
	// Unit is what one of the resource is. node: one device node. device: all nodes of one
	// piece of hardware, such as a camera's. all: all nodes that match.
	Unit string `json:"unit,omitempty"`
	// Permissions are those that a container has: of r (read), w (write) and m (mknod).
	// Empty: rw.
	Permissions string `json:"permissions,omitempty"`
	// Group is what the container's processes get as a supplementary group, and its device
	// nodes belong to: a number, or a name of the host. Nil: the group that the node has on
	// the host, unless that is root's.
	Group *intstr.IntOrString `json:"group,omitempty"`
	// ContainerPath is the node's path in the container; those of further nodes count up
	// from it: /dev/serial0, /dev/serial1. Empty: the path that it has on the host.
	ContainerPath string `json:"containerPath,omitempty"`
	// Shared is how many containers may have the same device at a time. 0 is 1.
	Shared int `json:"shared,omitempty"`
}

// A DeviceMatch says which devices it fits: all that is given must be so.
type DeviceMatch struct {
	// Paths are patterns of paths below /dev, one of which must match the node or a
	// symbolic link to it. * stands for any text without a slash, ? for a character, [a-z]
	// for one of several.
	Paths []string `json:"paths,omitempty"`
	// USB is what the USB device says of itself.
	USB *USBMatch `json:"usb,omitempty"`
	// Driver is the kernel's driver for the device, or for one that it is a part of.
	Driver string `json:"driver,omitempty"`
	// Subsystem is the kernel's kind of device: tty, video4linux, gpio, i2c-dev, spidev.
	Subsystem string `json:"subsystem,omitempty"`
	// Attributes are files below /sys of the device, or else of the nearest one that it is
	// a part of, with patterns for what they hold.
	Attributes map[string]string `json:"attributes,omitempty"`
}

// A USBMatch says which USB devices it fits.
type USBMatch struct {
	Vendor  string `json:"vendor,omitempty"`  // four hexadecimal digits, as lsusb shows them
	Product string `json:"product,omitempty"` // the same
	Serial  string `json:"serial,omitempty"`  // a pattern
}

// A RuntimeHandler is what pods get by a RuntimeClass: an OCI runtime, or a containerd
// shim. One of both is set.
// https://kubernetes.io/docs/concepts/containers/runtime-class/
type RuntimeHandler struct {
	// Name is what a RuntimeClass has as its handler.
	Name string `json:"name"`
	// OCIRuntime is the name or absolute path of a program that takes runc's
	// command line.
	OCIRuntime string `json:"ociRuntime,omitempty"`
	// Shim is the name or absolute path of a containerd shim, such as
	// containerd-shim-kata-v2.
	Shim string `json:"shim,omitempty"`
	// ShimConfig is the absolute path of a file that the shim reads. Empty: the shim
	// finds one by itself, or needs none.
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

// paths are the fields that hold a path, for the resolution of relative ones.
func (e *EdgeConfiguration) paths() []*string {
	p := []*string{&e.CNIConfDir, &e.RegistryConfigDir, &e.ImagesDir, &e.CRISocket}
	for i := range e.CNIBinDirs {
		p = append(p, &e.CNIBinDirs[i])
	}
	return p
}
