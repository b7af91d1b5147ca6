package storage

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Volume is what a pod's volume turned out to be.
type Volume struct {
	// ID is the same for the same storage, whichever pod uses it: the name of the driver
	// and its handle, as a kubelet has it in the Node's volumesInUse
	// (kubernetes.io/csi/DRIVER^HANDLE). A volume of one pod alone has the pod's UID in it.
	ID string
	// Name is its directory's: the PersistentVolume's, or of an inline volume the pod's own.
	Name string
	// Source is what to mount, of inline volumes too.
	Source v1.PersistentVolumeSource
	// Inline says that the volume has no PersistentVolume.
	Inline bool
	// Block says that the volume is a device and not a file system (volumeMode).
	Block bool
	// ReadOnly is the claim's or source's, not a mount's of a container.
	ReadOnly     bool
	MountOptions []string
	AccessModes  []v1.PersistentVolumeAccessMode
	// Capacity is the PersistentVolume's; nil: unknown.
	Capacity v1.ResourceList

	claim    *v1.PersistentVolumeClaim // nil: of none, or out of the ledger
	labelled bool                      // it is mounted with the pod's SELinux label
}

// A Use is one pod's use of a volume.
type Use struct {
	Pod    *v1.Pod
	Volume string // its name in the pod's spec
	// Path is where it is to appear: a directory below pods/UID/volumes, which need not
	// exist, or of a block volume a link below pods/UID/volumeDevices.
	Path string
}

// A Driver is one way to mount volumes. Its methods may be called from any goroutine,
// but for one volume by only one at a time; each is success when it is called again.
// They end soon after their context has.
type Driver interface {
	// Plugin is the driver's name in paths: kubernetes.io/nfs.
	Plugin() string
	// Serves reports whether a source is this driver's.
	Serves(*v1.PersistentVolumeSource) bool
	// Publish makes the volume appear at the use's path. staged is what Stage was given.
	Publish(ctx context.Context, v Volume, staged string, u Use) error
	// Unpublish undoes it. It knows the pod only by UID and what the ledger says.
	Unpublish(ctx context.Context, v Volume, uid types.UID, path string) error
}

// A Placer is a Driver whose volumes are elsewhere than at the place that is usual:
// pods/UID/volumes/PLUGIN/NAME, or volumeDevices of a block volume.
type Placer interface {
	// Place gives the path of the volume for one pod, whose usual path that is. One that
	// is not below pods/UID is the host's: nothing is mounted there and Publish only checks
	// that it can be used.
	Place(v Volume, usual string) string
}

// A Stager is a Driver that mounts a volume for the whole node first.
type Stager interface {
	// StagePath is where; empty: this volume is not staged.
	StagePath(v Volume) string
	Stage(ctx context.Context, v Volume, path string, u Use) error
	Unstage(ctx context.Context, v Volume, path string) error
}

// An Attacher is a Driver whose volumes must be attached to the node by somebody else
// before they are staged.
type Attacher interface {
	// Attached waits until the volume is attached. Its error says what is waited for.
	Attached(ctx context.Context, v Volume, u Use) error
}

// An Expander is a Driver whose volumes grow while they are published.
type Expander interface {
	Expand(ctx context.Context, v Volume, staged, published string, to v1.ResourceList) error
}

// An Adopter is a Driver that has to know what it published before the agent started: it goes
// on to look after it.
type Adopter interface {
	// Adopt takes up a volume of a pod that is mounted. It asks nobody.
	Adopt(v Volume, staged string, u Use)
}

// A Meter is a Driver that knows how full its volumes are, and how they are.
type Meter interface {
	Usage(ctx context.Context, v Volume, path string) (Usage, error)
}

// Usage is in bytes and inodes. A negative number is unknown.
type Usage struct {
	Capacity, Used, Available     int64
	Inodes, InodesUsed, InodeFree int64
	// Health says that the driver tells how the volume is.
	Health bool
	// Abnormal says what is wrong with the volume; empty: nothing is known to be.
	Abnormal string
}
