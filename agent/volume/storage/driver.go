package storage

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Volume is a pod's volume after its claim has been resolved to a storage and a driver.
type Volume struct {
	// ID identifies the storage. It does not depend on the pod. It has the format of the entries in the Node's
	// volumesInUse: it contains the driver's name and the volume handle (kubernetes.io/csi/DRIVER^HANDLE). The ID of
	// an inline volume also contains the pod's UID.
	ID string
	// Name is the name of the volume's directory. For an inline volume it is the volume's name in the pod, otherwise
	// it is the name of the PersistentVolume.
	Name string
	// Source describes the storage to mount. It is also set for inline volumes.
	Source v1.PersistentVolumeSource
	// Inline is set if there is no PersistentVolume.
	Inline bool
	// Block is set if the volume is a device instead of a file system (volumeMode).
	Block bool
	// ReadOnly is set if the claim or the source is read-only. It does not depend on a container's mount.
	ReadOnly     bool
	MountOptions []string
	AccessModes  []v1.PersistentVolumeAccessMode
	// Capacity is the capacity of the PersistentVolume, or nil if it is unknown.
	Capacity v1.ResourceList

	// Label is the SELinux label that MountOptions set for all files of the volume. It is empty if the volume is
	// mounted without a label.
	Label string `json:",omitempty"`

	// Claim is the name of the claim. It is empty for an inline volume, and in rows that earlier versions have stored.
	Claim string `json:",omitempty"`

	claim *v1.PersistentVolumeClaim // nil if there is no claim, or if the volume was loaded from the ledger
}

// A Use contains a pod that uses a volume, and the path of the volume for this pod.
type Use struct {
	Pod    *v1.Pod
	Volume string // name of the volume in the pod's spec
	// Path is the path of the volume. It is a directory below pods/UID/volumes, which need not exist. For a block
	// volume it is a link below pods/UID/volumeDevices.
	Path string
	// Recorded is set if the ledger contained the volume before this setup. Then the Node's volumesInUse has listed the volume since it was
	// mounted first, also if this was before a reboot.
	Recorded bool
}

// A Driver mounts volumes of one type of storage. Its methods must be safe for concurrent use, but are not called
// concurrently for the same volume. They must be idempotent and return soon after their context ends.
type Driver interface {
	// Plugin returns the driver's name in paths, such as kubernetes.io/nfs.
	Plugin() string
	// Serves reports whether this driver mounts the source.
	Serves(*v1.PersistentVolumeSource) bool
	// Publish mounts the volume at u.Path. If Stage has mounted the volume, the parameter staged is the path of that
	// mount. Otherwise it is empty.
	Publish(ctx context.Context, v Volume, staged string, u Use) error
	// Unpublish reverts Publish. Only the pod's UID and the data in the ledger are available to it.
	Unpublish(ctx context.Context, v Volume, uid types.UID, path string) error
}

// A PathProvider is a Driver that does not mount its volumes at the usual path. That path is pods/UID/volumes/PLUGIN/NAME,
// or below volumeDevices for a block volume.
type PathProvider interface {
	// PodPath returns the path of the volume for a pod. If the path is outside pods/UID, it belongs to the host.
	// Publish only checks such a path and mounts nothing there.
	PodPath(v Volume, usual string) string
}

// A Stager is a Driver that mounts a volume once for the whole node before it is published to pods.
type Stager interface {
	// StagePath returns the path at which Stage mounts the volume. It returns "" if the volume is not staged.
	StagePath(v Volume) string
	Stage(ctx context.Context, v Volume, path string, u Use) error
	Unstage(ctx context.Context, v Volume, path string) error
}

// An Attacher is a Driver whose volumes must be attached to the node before they are staged. Another component of the
// cluster attaches them.
type Attacher interface {
	// WaitAttached waits until the volume is attached. Its error describes what is missing.
	WaitAttached(ctx context.Context, v Volume, u Use) error
}

// An Expander is a Driver whose volumes can grow while they are published.
type Expander interface {
	Expand(ctx context.Context, v Volume, staged, published string, to v1.ResourceList) error
}

// An Adopter is a Driver that maintains published volumes, including volumes that a previous process has published.
type Adopter interface {
	// Adopt registers a volume that is mounted for a pod. It makes no call to the driver's program.
	Adopt(v Volume, staged string, u Use)
}

// A Finder is a Driver that finds its volumes on the disk, because the ledger is lost with the database.
type Finder interface {
	// Find returns the volumes that are or may be mounted, except at paths that are known. The volumes contain only the data that an
	// unmount needs, and no ID.
	Find(known func(path string) bool) ([]Found, error)
}

// A Found is a mount of a volume that a Finder has found.
type Found struct {
	Volume Volume
	Pod    types.UID // empty if the volume is mounted for the node
	Path   string
}

// A Meter is a Driver that reports the usage and health of its volumes.
type Meter interface {
	Usage(ctx context.Context, v Volume, path string) (Usage, error)
}

// Usage contains numbers of bytes and inodes. A negative number means unknown.
type Usage struct {
	Capacity, Used, Available     int64
	Inodes, InodesUsed, InodeFree int64
	// Abnormal describes a problem with the volume. It is empty if no problem is known.
	Abnormal string
}
