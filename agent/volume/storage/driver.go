package storage

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Volume is a resolved volume of a pod.
type Volume struct {
	// ID identifies the storage independently of the pod, in the format of the Node's volumesInUse:
	// the driver's name and its handle (kubernetes.io/csi/DRIVER^HANDLE). The ID of an inline
	// volume contains the pod's UID.
	ID string
	// Name is the name of the volume's directory: that of the PersistentVolume, or the name of an
	// inline volume in the pod.
	Name string
	// Source is the source to mount, also for inline volumes.
	Source v1.PersistentVolumeSource
	// Inline: the volume has no PersistentVolume.
	Inline bool
	// Block: the volume is a device and not a file system (volumeMode).
	Block bool
	// ReadOnly comes from the claim or source, not from a container's mount.
	ReadOnly     bool
	MountOptions []string
	AccessModes  []v1.PersistentVolumeAccessMode
	// Capacity is the capacity of the PersistentVolume; nil: unknown.
	Capacity v1.ResourceList

	claim    *v1.PersistentVolumeClaim // nil: no claim, or loaded from the ledger
	labelled bool                      // mounted with the pod's SELinux label
}

// A Use is one pod's use of a volume.
type Use struct {
	Pod    *v1.Pod
	Volume string // its name in the pod's spec
	// Path is the volume's path: a directory below pods/UID/volumes, which need not exist, or for a
	// block volume a link below pods/UID/volumeDevices.
	Path string
}

// A Driver is one way to mount volumes. Its methods may be called from any goroutine, but not
// concurrently for the same volume. They are idempotent and return soon after their context ends.
type Driver interface {
	// Plugin returns the driver's name in paths, such as kubernetes.io/nfs.
	Plugin() string
	// Serves reports whether this driver mounts the source.
	Serves(*v1.PersistentVolumeSource) bool
	// Publish mounts the volume at the use's path. staged is the path that Stage mounted.
	Publish(ctx context.Context, v Volume, staged string, u Use) error
	// Unpublish reverts Publish. Only the pod's UID and the ledger's record are available.
	Unpublish(ctx context.Context, v Volume, uid types.UID, path string) error
}

// A Placer is a Driver whose volumes are not at the usual path, pods/UID/volumes/PLUGIN/NAME, or
// volumeDevices for a block volume.
type Placer interface {
	// Place returns the path of the volume for a pod. A path outside pods/UID belongs to the host:
	// nothing is mounted there, and Publish only checks it.
	Place(v Volume, usual string) string
}

// A Stager is a Driver that first mounts a volume for the whole node.
type Stager interface {
	// StagePath returns the path of that mount; empty: this volume is not staged.
	StagePath(v Volume) string
	Stage(ctx context.Context, v Volume, path string, u Use) error
	Unstage(ctx context.Context, v Volume, path string) error
}

// An Attacher is a Driver whose volumes must be attached to the node, by another component, before
// they are staged.
type Attacher interface {
	// Attached waits until the volume is attached. Its error names the missing step.
	Attached(ctx context.Context, v Volume, u Use) error
}

// An Expander is a Driver whose volumes can grow while they are published.
type Expander interface {
	Expand(ctx context.Context, v Volume, staged, published string, to v1.ResourceList) error
}

// An Adopter is a Driver that maintains published volumes, also those that a previous process
// published.
type Adopter interface {
	// Adopt registers a mounted volume of a pod. It makes no call to the driver's program.
	Adopt(v Volume, staged string, u Use)
}

// A Meter is a Driver that reports the usage and health of its volumes.
type Meter interface {
	Usage(ctx context.Context, v Volume, path string) (Usage, error)
}

// Usage is in bytes and inodes. A negative value is unknown.
type Usage struct {
	Capacity, Used, Available     int64
	Inodes, InodesUsed, InodeFree int64
	// Health: the driver reports the volume's health.
	Health bool
	// Abnormal describes a problem with the volume; empty: none is known.
	Abnormal string
}
