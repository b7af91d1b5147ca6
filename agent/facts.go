package agent

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/config"
	edgenode "github.com/islet-edge/islet/edge/node"
	"github.com/islet-edge/islet/metrics/host"
)

// facts gives what the Node object says of this machine, as it is now. It is
// asked every few seconds, so what does not change is read once.
// https://kubernetes.io/docs/reference/node/node-status/
func (a *agent) facts() func(context.Context) (edgenode.Facts, error) {
	identity := sync.OnceValues(func() (host.Identity, error) { return host.New(host.Config{}).Identity(context.Background()) })
	told := map[string]bool{}
	return func(ctx context.Context) (edgenode.Facts, error) {
		id, err := identity()
		if err != nil {
			return edgenode.Facts{}, err
		}
		rt, err := a.rt.runtime.Version(ctx, &cri.VersionRequest{})
		if err != nil {
			return edgenode.Facts{}, err
		}
		now := a.node.now()
		a.link.SetAddresses([]string{now.Name}, a.node.ips()) // a machine may get them long after it booted
		f := edgenode.Facts{
			Capacity: now.Allocatable, Allocatable: now.Allocatable,
			Addresses: nodeAddresses(now.IPs, now.Name),
			Info: v1.NodeSystemInfo{
				MachineID: id.MachineID, SystemUUID: id.SystemUUID, BootID: id.BootID, KernelVersion: id.Kernel, OSImage: id.OSImage,
				ContainerRuntimeVersion: rt.RuntimeName + "://" + rt.RuntimeVersion, KubeletVersion: config.KubernetesVersion,
				OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
			},
			RuntimeHandlers: []v1.NodeRuntimeHandler{{Name: ""}},
		}
		f.NotReady = a.notReady(ctx)
		a.tellConditions(&f, told)
		f.Images, err = a.nodeImages(ctx)
		return f, err
	}
}

// notReady is why pods cannot run here, as a kubelet words it.
func (a *agent) notReady(ctx context.Context) (why []string) {
	for _, c := range a.checks() {
		if err := c.Check(ctx); err != nil {
			why = append(why, err.Error())
		}
	}
	if err := a.rt.network.Ready(); err != nil {
		why = append(why, "container runtime network not ready: "+err.Error())
	}
	return why
}

func nodeAddresses(ips []string, name string) (out []v1.NodeAddress) {
	for _, ip := range ips {
		out = append(out, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	return append(out, v1.NodeAddress{Type: v1.NodeHostName, Address: name})
}

// nodeImages lists the images, the largest first.
func (a *agent) nodeImages(ctx context.Context) ([]v1.ContainerImage, error) {
	list, err := a.rt.images.ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return nil, err
	}
	out := make([]v1.ContainerImage, 0, len(list.Images))
	for _, i := range list.Images {
		out = append(out, v1.ContainerImage{Names: slices.Concat(i.RepoDigests, i.RepoTags), SizeBytes: int64(i.Size)})
	}
	slices.SortStableFunc(out, func(x, y v1.ContainerImage) int { return cmp.Compare(y.SizeBytes, x.SizeBytes) })
	return out, nil
}
