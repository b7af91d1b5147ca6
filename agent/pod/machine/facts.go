package machine

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	edgenode "github.com/islet-edge/islet/edge/node"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/event"
	"github.com/islet-edge/islet/internal/sorting"
	"github.com/islet-edge/islet/metrics/host"
)

// ReporterConfig is what a Reporter needs.
type ReporterConfig struct {
	Machine   *Machine
	Runtime   Runtime
	Images    Images
	NotReady  func(context.Context) []string // why pods cannot run here
	Addresses func(names []string, ips []netip.Addr)
	Events    event.Sink
	Meta      Meta
	// Conditions are further ones of the Node; nil: there are none.
	Conditions func() []v1.NodeCondition
	InUse      func() []v1.UniqueVolumeName // volumes that nobody may detach; nil: none
	Log        *slog.Logger
}

// Runtime says what runs containers here.
type Runtime interface {
	Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error)
	Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error)
}

// Images lists images.
type Images interface {
	ListImages(context.Context, *cri.ListImagesRequest) (*cri.ListImagesResponse, error)
}

// A Reporter makes what the Node object and its events say of this machine.
type Reporter struct {
	c        ReporterConfig
	identity func() (host.Identity, error)
	told     map[string]bool // conditions by the reasons of their events; Facts is for one caller
	last     engine          // what the container runtime said of itself; Facts' too

	mu   sync.Mutex
	open *bool // for the scheduler; nil: not known
}

// NewReporter reads nothing.
func NewReporter(c ReporterConfig) *Reporter {
	return &Reporter{c: c, told: map[string]bool{},
		identity: sync.OnceValues(func() (host.Identity, error) { return host.New(host.Config{}).Identity(context.Background()) })}
}

func (a *Reporter) inUse() []v1.UniqueVolumeName {
	if a.c.InUse == nil {
		return nil
	}
	return a.c.InUse()
}

// Facts gives what the Node object says of this machine, as it is now. It is
// asked every few seconds, so what does not change is read once.
// https://kubernetes.io/docs/reference/node/node-status/
func (a *Reporter) Facts(ctx context.Context) (edgenode.Facts, error) {
	id, err := a.identity()
	if err != nil {
		return edgenode.Facts{}, err
	}
	rt := a.runtime(ctx)
	now := a.c.Machine.Now()
	a.c.Addresses([]string{now.Name}, a.c.Machine.IPs()) // a machine may get them long after it booted
	f := edgenode.Facts{
		VolumesInUse: a.inUse(),
		Addresses:    nodeAddresses(a.c.Machine.told(now.IPs), now.Name),
		Info: v1.NodeSystemInfo{
			MachineID: id.MachineID, SystemUUID: id.SystemUUID, BootID: id.BootID, KernelVersion: id.Kernel, OSImage: id.OSImage,
			ContainerRuntimeVersion: rt.version, KubeletVersion: config.KubernetesVersion,
			OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
		},
		Declared: []string{ // else no pod that needs them is scheduled here, or resized
			webSockets, "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers",
			"RestartAllContainersOnContainerExits",
		},
	}
	f.Capacity, f.Allocatable = a.c.Machine.resources()
	if swap := a.c.Machine.swap; swap > 0 {
		f.Info.Swap = &v1.NodeSwapStatus{Capacity: &swap}
	}
	f.RuntimeHandlers, f.Images = rt.handlers, rt.images
	f.NotReady = a.c.NotReady(ctx)
	pressures := a.c.Machine.Pressures()
	f.MemoryPressure, f.DiskPressure, f.PIDPressure = slices.Contains(pressures, v1.NodeMemoryPressure),
		slices.Contains(pressures, v1.NodeDiskPressure), slices.Contains(pressures, v1.NodePIDPressure)
	if a.c.Conditions != nil {
		f.Conditions = a.c.Conditions()
	}
	a.conditions(&f)
	return f, nil
}

// webSockets has API servers from 1.36 on pass WebSockets of exec, attach and port-forward on to
// this node. Otherwise they speak WebSocket to the client and SPDY to the node, and close the
// WebSocket when the node's last byte has come: a client that is slow loses the end (KEP-4006).
const webSockets = "ExtendWebSocketsToKubelet"

// engine is what the container runtime says of itself.
type engine struct {
	version  string
	handlers []v1.NodeRuntimeHandler
	images   []v1.ContainerImage
}

// runtime asks the container runtime. While it does not answer, the Node goes on to say
// what it said last: that it does not is a matter of NotReady.
func (a *Reporter) runtime(ctx context.Context) engine {
	v, err := a.c.Runtime.Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return a.last
	}
	now := engine{version: v.RuntimeName + "://" + v.RuntimeVersion}
	if now.handlers, err = a.runtimeHandlers(ctx); err != nil {
		return a.last
	}
	if now.images, err = a.nodeImages(ctx); err != nil {
		return a.last
	}
	a.last = now
	return now
}

// runtimeHandlers lists what a RuntimeClass may name, with what each can.
// https://kubernetes.io/docs/reference/node/node-status/ and KEP-3857
func (a *Reporter) runtimeHandlers(ctx context.Context) ([]v1.NodeRuntimeHandler, error) {
	st, err := a.c.Runtime.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return nil, err
	}
	out := make([]v1.NodeRuntimeHandler, 0, len(st.RuntimeHandlers))
	for _, h := range st.RuntimeHandlers {
		out = append(out, v1.NodeRuntimeHandler{Name: h.Name, Features: &v1.NodeRuntimeHandlerFeatures{
			RecursiveReadOnlyMounts: new(h.Features.GetRecursiveReadOnlyMounts()), UserNamespaces: new(h.Features.GetUserNamespaces()),
		}})
	}
	return out, nil
}

// told are the addresses that this node says of itself. With an external cloud provider
// and no --node-ip there are none: the provider knows them.
func (n *Machine) told(ips []string) []string {
	if n.cfg.Node.CloudProvider == "external" && len(n.cfg.Node.IPs) == 0 {
		return nil
	}
	return ips
}

func nodeAddresses(ips []string, name string) (out []v1.NodeAddress) {
	for _, ip := range ips {
		out = append(out, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	return append(out, v1.NodeAddress{Type: v1.NodeHostName, Address: name})
}

// nodeImages lists the images, the largest first.
func (a *Reporter) nodeImages(ctx context.Context) ([]v1.ContainerImage, error) {
	list, err := a.c.Images.ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return nil, err
	}
	out := make([]v1.ContainerImage, 0, len(list.Images))
	for _, i := range list.Images {
		out = append(out, v1.ContainerImage{Names: slices.Concat(i.RepoDigests, i.RepoTags), SizeBytes: int64(i.Size)})
	}
	sorting.StableBy(out, func(x, y v1.ContainerImage) int { return cmp.Compare(y.SizeBytes, x.SizeBytes) })
	return out, nil
}

// throttles lists what processors tell of how often they were too hot: one program
// can learn by it what another does. A kubelet masks those that are there when it
// starts.
func throttles(root string) []string {
	found, _ := filepath.Glob(filepath.Join(root, "sys/devices/system/cpu/cpu[0-9]*/thermal_throttle")) // the pattern is right
	for i := range found {
		found[i] = filepath.Join("/", strings.TrimPrefix(found[i], root))
	}
	return found
}
