package conformance

import (
	"maps"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
)

// The default selection of TestStorageSuite excludes specs that take many minutes. It also excludes specs that need a snapshot controller,
// SELinux, or features that are off by default.
const (
	storageFocus = `CSI Mock|MutableCSINodeAllocatableCount|\[DRA\]`
	storageSkip  = `\[Serial\]|\[Disruptive\]|\[Slow\]|\[Flaky\]|\[Feature:OffByDefault\]|\[Alpha\]|\[Feature:SELinux\]|\[Feature:VolumeSnapshotDataSource\]|v1beta[12] API`
)

// TestStorageSuite runs Kubernetes' unchanged end-to-end specs of CSI drivers and dynamic resource allocation against two nodes. The
// drivers run in the process of the suite. A proxy pod provides their sockets on the node.
func TestStorageSuite(t *testing.T) {
	dir := suiteDir(t)
	set := images()
	maps.Copy(set, driverImages())
	c, _ := start(t, dir, set, func(n *cluster.Node) {
		// The drivers' pods use the default paths of a kubelet.
		n.Run("mkdir", "-p", n.Disk+"/kubelet", "/var/lib/kubelet")
		n.Run("mount", "--bind", n.Disk+"/kubelet", "/var/lib/kubelet")
		n.Join("--root-dir=/var/lib/kubelet")
	})
	suite(t, c, dir, "storage", storageFocus, storageSkip)
}
