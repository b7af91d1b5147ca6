package machine

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"os"
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

// ReporterConfig configures a Reporter.
type ReporterConfig struct {
	Machine   *Machine
	Runtime   Runtime
	Images    Images
	NotReady  func(context.Context) []string // returns the reason why pods cannot run on this node
	Addresses func(names []string, ips []netip.Addr)
	Events    event.Sink
	Meta      Meta
	// Conditions returns additional conditions of the Node. It may be nil.
	Conditions func() []v1.NodeCondition
	InUse      func() []v1.UniqueVolumeName // returns the volumes that must not be detached; may be nil
	Log        *slog.Logger
}

// Runtime returns the version and status of the container runtime.
type Runtime interface {
	Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error)
	Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error)
}

// Images lists images.
type Images interface {
	ListImages(context.Context, *cri.ListImagesRequest) (*cri.ListImagesResponse, error)
}

// A Reporter provides the facts for the Node object, and records the events of the Node.
type Reporter struct {
	c                  ReporterConfig
	identity           func() (host.Identity, error)
	reportedConditions map[string]bool // the reported conditions, by the reason in their event; only the caller of Facts uses it
	last               engine          // the last response of the container runtime; only the caller of Facts uses it

	mu          sync.Mutex
	schedulable *bool // whether the Node is schedulable; nil if that is unknown
}

// NewReporter returns a Reporter. It reads no files.
func NewReporter(c ReporterConfig) *Reporter {
	return &Reporter{c: c, reportedConditions: map[string]bool{},
		identity: sync.OnceValues(func() (host.Identity, error) { return host.New(host.Config{}).Identity(context.Background()) })}
}

func (a *Reporter) inUse() []v1.UniqueVolumeName {
	if a.c.InUse == nil {
		return nil
	}
	return a.c.InUse()
}

// Facts returns the current facts for the Node object. It must not be called concurrently. It is called every few
// seconds, so facts that do not change are read only once.
// https://kubernetes.io/docs/reference/node/node-status/
func (a *Reporter) Facts(ctx context.Context) (edgenode.Facts, error) {
	id, err := a.identity()
	if err != nil {
		return edgenode.Facts{}, err
	}
	rt := a.readRuntime(ctx)
	now := a.c.Machine.Now()
	a.c.Addresses([]string{now.Name}, a.c.Machine.IPs()) // a machine may get its addresses long after it booted
	f := edgenode.Facts{
		VolumesInUse: a.inUse(),
		Addresses:    nodeAddresses(a.c.Machine.reportedIPs(now.IPs), now.Name),
		Info: v1.NodeSystemInfo{
			MachineID: id.MachineID, SystemUUID: id.SystemUUID, BootID: id.BootID, KernelVersion: id.Kernel, OSImage: id.OSImage,
			ContainerRuntimeVersion: rt.version, KubeletVersion: config.KubernetesVersion,
			OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
		},
		Declared: declaredFeatures(rt.bindOptions && a.c.Machine.cfg.GateEnabled(config.GateBindOptions)),
	}
	f.Info.RunningInUserNamespace = inUserNamespace(os.DirFS("/proc"))
	f.Capacity, f.Allocatable = a.c.Machine.nodeResources()
	if swap := a.c.Machine.swap; swap > 0 {
		f.Info.Swap = &v1.NodeSwapStatus{Capacity: &swap}
	}
	f.RuntimeHandlers, f.Features, f.Images = rt.handlers, rt.features, rt.images
	f.NotReady = a.c.NotReady(ctx)
	pressures := a.c.Machine.Pressures()
	f.MemoryPressure, f.DiskPressure, f.PIDPressure = slices.Contains(pressures, v1.NodeMemoryPressure),
		slices.Contains(pressures, v1.NodeDiskPressure), slices.Contains(pressures, v1.NodePIDPressure)
	if a.c.Conditions != nil {
		f.Conditions = a.c.Conditions()
	}
	a.reportConditions(&f)
	return f, nil
}

// declaredFeatures returns the features that the Node declares, sorted. A pod that requires such a feature is scheduled
// to this node, or resized, only if the Node lists the feature (KEP-5328).
func declaredFeatures(bindOptions bool) []string {
	all := []string{
		webSockets, "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers",
		"RestartAllContainersOnContainerExits",
	}
	if bindOptions {
		all = append(all, config.GateBindOptions)
	}
	return all
}

// If the Node has the feature webSockets, API servers from 1.36 on forward WebSocket connections of exec, attach and
// port-forward to this node. Otherwise they use SPDY to connect to the node, and close the client's WebSocket when
// the node's last byte has arrived. A slow client then loses the end of the output (KEP-4006).
const webSockets = "ExtendWebSocketsToKubelet"

// engine contains the data that the container runtime reports about itself.
type engine struct {
	version  string
	handlers []v1.NodeRuntimeHandler
	features *v1.NodeFeatures // nil if the runtime reports none
	images   []v1.ContainerImage

	bindOptions bool // the runtime supports mount options
}

// readRuntime returns the data that the container runtime reports. If the container runtime does not respond, the method
// returns the last known data, and NotReady reports the failure.
func (a *Reporter) readRuntime(ctx context.Context) engine {
	v, err := a.c.Runtime.Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return a.last
	}
	now := engine{version: v.RuntimeName + "://" + v.RuntimeVersion}
	st, err := a.c.Runtime.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return a.last
	}
	now.handlers, now.features = runtimeHandlers(st), nodeFeatures(st)
	now.bindOptions = st.GetFeatures().GetMountOptions()
	if now.images, err = a.nodeImages(ctx); err != nil {
		return a.last
	}
	a.last = now
	return now
}

// runtimeHandlers lists the handlers that a RuntimeClass can specify, with their features.
// https://kubernetes.io/docs/reference/node/node-status/ and KEP-3857
func runtimeHandlers(st *cri.StatusResponse) []v1.NodeRuntimeHandler {
	out := make([]v1.NodeRuntimeHandler, 0, len(st.RuntimeHandlers))
	for _, h := range st.RuntimeHandlers {
		out = append(out, v1.NodeRuntimeHandler{Name: h.Name, Features: &v1.NodeRuntimeHandlerFeatures{
			RecursiveReadOnlyMounts: new(h.Features.GetRecursiveReadOnlyMounts()), UserNamespaces: new(h.Features.GetUserNamespaces()),
		}})
	}
	return out
}

// nodeFeatures returns the features of the runtime that do not depend on a handler (KEP-3619), or nil if the runtime
// reports none.
func nodeFeatures(st *cri.StatusResponse) *v1.NodeFeatures {
	if st.GetFeatures() == nil {
		return nil
	}
	return &v1.NodeFeatures{SupplementalGroupsPolicy: new(st.GetFeatures().GetSupplementalGroupsPolicy())}
}

// nodeImages lists the images by size, the largest first.
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

// throttlePaths lists the files in which the kernel counts the thermal throttling of CPUs. They are hidden from
// containers, because a program could infer the activity of other programs from these counts. A kubelet masks the files
// that exist when it starts.
func throttlePaths(root string) []string {
	found, _ := filepath.Glob(filepath.Join(root, "sys/devices/system/cpu/cpu[0-9]*/thermal_throttle")) // the pattern is valid
	for i := range found {
		found[i] = filepath.Join("/", strings.TrimPrefix(found[i], root))
	}
	return found
}
