package storage

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Volume is a pod's volume whose storage and driver have been determined.
type Volume struct {
	// ID identifies the storage independently of the pod. It has the format of the Node's volumesInUse, and contains
	// the driver's name and the volume handle (kubernetes.io/csi/DRIVER^HANDLE). The ID of an inline volume contains
	// the pod's UID.
	ID string
	// Name is the name of the volume's directory. It is the name of the PersistentVolume or, for an inline volume,
	// the volume's name in the pod.
	Name string
	// Source is the source to mount. It is set for inline volumes too.
	Source v1.PersistentVolumeSource
	// Inline is set if the volume has no PersistentVolume.
	Inline bool
	// Block is set if the volume is a device instead of a file system (volumeMode).
	Block bool
	// ReadOnly is set by the claim or the source, not by a container's mount.
	ReadOnly     bool
	MountOptions []string
	AccessModes  []v1.PersistentVolumeAccessMode
	// Capacity is the capacity of the PersistentVolume, or nil if it is unknown.
	Capacity v1.ResourceList

	claim    *v1.PersistentVolumeClaim // nil if there is no claim or the volume was loaded from the ledger
	labelled bool                      // mounted with the pod's SELinux label
}

// A Use is one pod's use of a volume.
type Use struct {
	Pod    *v1.Pod
	Volume string // name of the volume in the pod's spec
	// Path is the path of the volume. It is a directory below pods/UID/volumes, which need not exist, or a link below
	// pods/UID/volumeDevices for a block volume.
	Path string
}

// A Driver mounts volumes of one type of storage. Its methods must be safe for concurrent use, but are not called
// concurrently for the same volume. They must be idempotent and return soon after their context ends.
type Driver interface {
	// Plugin returns the driver's name in paths, such as kubernetes.io/nfs.
	Plugin() string
	// Serves reports whether this driver mounts the source.
	Serves(*v1.PersistentVolumeSource) bool
	// Publish mounts the volume at u.Path. staged is the path that Stage mounted.
	Publish(ctx context.Context, v Volume, staged string, u Use) error
	// Unpublish reverts Publish. It knows only the pod's UID and the record in the ledger.
	Unpublish(ctx context.Context, v Volume, uid types.UID, path string) error
}

// A Placer is a Driver that does not mount its volumes at the usual path. That path is pods/UID/volumes/PLUGIN/NAME,
// or below volumeDevices for a block volume.
type Placer interface {
	// Place returns the path of the volume for a pod. A path outside pods/UID belongs to the host: Publish does not
	// mount anything there, but only checks the path.
	Place(v Volume, usual string) string
}

// A Stager is a Driver that first mounts a volume for the whole node.
type Stager interface {
	// StagePath returns the path at which Stage mounts the volume. It returns "" if the volume is not staged.
	StagePath(v Volume) string
	Stage(ctx context.Context, v Volume, path string, u Use) error
	Unstage(ctx context.Context, v Volume, path string) error
}

// An Attacher is a Driver whose volumes must be attached to the node before they are staged. Another component
// attaches them.
type Attacher interface {
	// Attached waits until the volume is attached. Its error describes the missing step.
	Attached(ctx context.Context, v Volume, u Use) error
}

// An Expander is a Driver whose volumes can grow while they are published.
type Expander interface {
	Expand(ctx context.Context, v Volume, staged, published string, to v1.ResourceList) error
}

// An Adopter is a Driver that maintains published volumes, including those that a previous process published.
type Adopter interface {
	// Adopt registers a mounted volume of a pod. It does not call the driver's program.
	Adopt(v Volume, staged string, u Use)
}

// A Meter is a Driver that reports the usage and health of its volumes.
type Meter interface {
	Usage(ctx context.Context, v Volume, path string) (Usage, error)
}

// Usage contains numbers of bytes and inodes. A negative number is unknown.
type Usage struct {
	Capacity, Used, Available     int64
	Inodes, InodesUsed, InodeFree int64
	// Abnormal describes a problem with the volume. It is empty if no problem is known.
	Abnormal string
}
