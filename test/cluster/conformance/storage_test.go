package conformance

import (
	"maps"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
)

// What of the end-to-end suite TestStorageSuite runs where nothing else is asked for: what
// needs no feature that is off by default, no snapshot controller and no SELinux, and does
// not wait for many minutes.
const (
	storageFocus = `CSI Mock|MutableCSINodeAllocatableCount|\[DRA\]`
	storageSkip  = `\[Serial\]|\[Disruptive\]|\[Slow\]|\[Flaky\]|\[Feature:OffByDefault\]|\[Alpha\]|\[Feature:SELinux\]|\[Feature:VolumeSnapshotDataSource\]|v1beta[12] API`
)

// TestStorageSuite runs Kubernetes' end-to-end specs of CSI drivers and of dynamic
// resources, unchanged, against two nodes. The drivers are the suite's own: they run in its
// process, and have their sockets on a node by a pod that proxies them.
func TestStorageSuite(t *testing.T) {
	dir := suiteDir(t)
	set := images()
	maps.Copy(set, driverImages())
	c, _ := start(t, dir, set, func(n *cluster.Node) {
		// The drivers' pods have a kubelet's paths.
		n.Run("mkdir", "-p", n.Disk+"/kubelet", "/var/lib/kubelet")
		n.Run("mount", "--bind", n.Disk+"/kubelet", "/var/lib/kubelet")
		n.Join("--root-dir=/var/lib/kubelet")
	})
	suite(t, c, dir, "storage", storageFocus, storageSkip)
}
