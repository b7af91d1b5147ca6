package bundle

import (
	"context"
	"encoding/json"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/api"
	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/podspec"
)

// maxReason is the maximum length of a pod's reason in a state document, in bytes.
const maxReason = 1 << 10

// State returns the signed state of the node: bundles, pods, versions, disk, wear and updates. The first call creates the node's signing
// key.
func (n *Node) State(ctx context.Context) (*format.SignedState, error) {
	key, err := n.c.Signer()
	if err != nil {
		return nil, fmt.Errorf("sign the state of this node: %w", err)
	}
	bundles, err := n.Status()
	if err != nil {
		return nil, err
	}
	out := api.BundleState{Node: n.c.Name, Time: n.c.Now().UTC(), Bundles: bundles, Pods: []api.BundlePod{}, Disk: api.Disk{Path: n.c.Dir},
		Versions: api.BundleVersions{Islet: n.facts.version, Kubernetes: config.KubernetesVersion, Kernel: kernelVersion()}}
	for _, p := range n.c.List() {
		pod := api.BundlePod{Name: podName(p), Ready: podspec.IsReady(&p.Status)}
		if !pod.Ready {
			reason := describe(p)
			pod.Reason = reason[:min(len(reason), maxReason)]
		}
		out.Pods = append(out.Pods, pod)
	}
	var disk unix.Statfs_t
	if unix.Statfs(n.c.Dir, &disk) == nil {
		out.Disk.Total, out.Disk.Free = disk.Blocks*uint64(disk.Bsize), disk.Bavail*uint64(disk.Bsize)
	}
	if n.facts.describe != nil {
		var all api.Status
		n.facts.describe(ctx, &all)
		out.Wear = all.Flash
	}
	if n.programs != nil {
		out.Update, _ = n.programs.Report()
	}
	return format.SignState(out, key)
}

// Report returns the signed state as indented JSON.
func (n *Node) Report(ctx context.Context) ([]byte, error) {
	s, err := n.State(ctx)
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(s, "", "  ")
	return append(text, '\n'), err
}

func kernelVersion() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
