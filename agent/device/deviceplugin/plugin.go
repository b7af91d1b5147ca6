package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"google.golang.org/grpc"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/islet-edge/islet/agent/device/devicemanager"
	"github.com/islet-edge/islet/agent/plugin/plugins"
)

// Limits of calls to a plugin and of its responses.
const (
	dialTimeout     = 10 * time.Second
	allocateTimeout = 2 * time.Minute
	preferTimeout   = 10 * time.Second
	preStartTimeout = api.KubeletPreStartContainerRPCTimeoutInSecs * time.Second
	maxNUMANodes    = 64
	anyPermission   = "rwm"
)

// A plugin is a devicemanager.Provider that calls a device plugin through its socket.
type plugin struct {
	resource, socket string
	conn             *grpc.ClientConn
	client           api.DevicePluginClient
	options          *api.DevicePluginOptions
	counter          Counter
	link             *devicemanager.Link
	stop             context.CancelCauseFunc
}

// dial connects to a plugin and requests its options. If the plugin returns no options, the options from its
// registration are used.
func (p *Plugins) dial(ctx context.Context, resource, socket string, options *api.DevicePluginOptions) (*plugin, error) {
	fi, err := os.Lstat(socket)
	if err == nil && fi.Mode().Type() != os.ModeSocket {
		err = errors.New("it is not a socket")
	}
	if err != nil {
		return nil, fmt.Errorf("failed to dial device plugin at %s: %w", socket, err)
	}
	conn, err := plugins.Dial(socket)
	if err != nil {
		return nil, err
	}
	x := &plugin{
		resource: resource, socket: socket, conn: conn, client: api.NewDevicePluginClient(conn),
		counter: p.c.Counter, stop: func(error) {},
	}
	ctx, stop := context.WithTimeout(ctx, dialTimeout)
	defer stop()
	if x.options, err = x.client.GetDevicePluginOptions(ctx, &api.Empty{}, grpc.WaitForReady(true)); err != nil {
		x.close()
		return nil, fmt.Errorf("failed to get device plugin options: %w", err)
	}
	if x.options == nil {
		x.options = options
	}
	return x, nil
}

func (x *plugin) close() { _ = x.conn.Close() } // fails only if the connection is already closed

// Yield implements devicemanager.Yielder. It disconnects the plugin.
func (x *plugin) Yield(why error) { x.stop(why) }

// watch forwards the plugin's lists of devices to the Manager until the stream ends.
func (x *plugin) watch(ctx context.Context) error {
	stream, err := x.client.ListAndWatch(ctx, &api.Empty{})
	if err != nil {
		return err
	}
	return plugins.EachList(ctx, stream,
		func(resp *api.ListAndWatchResponse) error { return x.link.Devices(convertDevices(resp.Devices)) })
}

func convertDevices(list []*api.Device) []devicemanager.Device {
	out := make([]devicemanager.Device, 0, len(list))
	for _, d := range list {
		now := devicemanager.Device{ID: d.GetID(), Healthy: d.GetHealth() == api.Healthy}
		for _, n := range d.GetTopology().GetNodes() {
			if len(now.NUMA) < maxNUMANodes {
				now.NUMA = append(now.NUMA, n.GetID())
			}
		}
		out = append(out, now)
	}
	return out
}

// Allocate implements devicemanager.Provider.
func (x *plugin) Allocate(ctx context.Context, r devicemanager.Request) (devicemanager.Allocation, error) {
	ctx, stop := context.WithTimeout(ctx, allocateTimeout)
	defer stop()
	began := time.Now()
	resp, err := x.client.Allocate(ctx, &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: r.IDs}}})
	x.counter.Allocated(x.resource, time.Since(began))
	if err != nil {
		return devicemanager.Allocation{}, err
	}
	if len(resp.ContainerResponses) == 0 {
		return devicemanager.Allocation{}, fmt.Errorf("no containers return in allocation response of %s", x.resource)
	}
	return convertAllocation(resp.ContainerResponses[0]), nil
}

func convertAllocation(c *api.ContainerAllocateResponse) devicemanager.Allocation {
	a := devicemanager.Allocation{Env: maps.Clone(c.GetEnvs()), Annotations: maps.Clone(c.GetAnnotations())}
	for _, m := range c.GetMounts() {
		a.Mounts = append(a.Mounts, devicemanager.Mount{Host: m.GetHostPath(), Container: m.GetContainerPath(),
			ReadOnly: m.GetReadOnly()})
	}
	for _, d := range c.GetDevices() {
		n := devicemanager.Node{Host: d.GetHostPath(), Container: d.GetContainerPath(), Permissions: d.GetPermissions()}
		if n.Permissions == "" {
			n.Permissions = anyPermission
		}
		a.Nodes = append(a.Nodes, n)
	}
	for _, d := range c.GetCdiDevices() {
		a.CDI = append(a.CDI, d.GetName())
	}
	return a
}

// Start calls PreStartContainer if the plugin's options require it.
func (x *plugin) Start(ctx context.Context, r devicemanager.Request) (*devicemanager.Allocation, error) {
	if !x.options.GetPreStartRequired() {
		return nil, nil
	}
	ctx, stop := context.WithTimeout(ctx, preStartTimeout)
	defer stop()
	if _, err := x.client.PreStartContainer(ctx, &api.PreStartContainerRequest{DevicesIds: r.IDs}); err != nil {
		return nil, fmt.Errorf("device plugin PreStartContainer rpc failed with err: %w", err)
	}
	return nil, nil
}

// PreferredDevices implements devicemanager.Preferrer. It calls GetPreferredAllocation if the plugin's options offer it.
func (x *plugin) PreferredDevices(ctx context.Context, c devicemanager.Choice) ([]string, error) {
	if !x.options.GetGetPreferredAllocationAvailable() {
		return nil, nil
	}
	ctx, stop := context.WithTimeout(ctx, preferTimeout)
	defer stop()
	resp, err := x.client.GetPreferredAllocation(ctx, &api.PreferredAllocationRequest{
		ContainerRequests: []*api.ContainerPreferredAllocationRequest{
			{AvailableDeviceIDs: c.Available, MustIncludeDeviceIDs: c.Must, AllocationSize: int32(c.Count)},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("device plugin GetPreferredAllocation rpc failed with err: %w", err)
	}
	if len(resp.GetContainerResponses()) == 0 {
		return nil, nil
	}
	return resp.ContainerResponses[0].GetDeviceIDs(), nil
}
