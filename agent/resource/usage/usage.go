package usage

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/metrics/disk"
	"github.com/islet-edge/islet/metrics/host"
	"github.com/islet-edge/islet/metrics/sample"
)

// A Runtime lists sandboxes, containers and container statistics.
type Runtime interface {
	ListPodSandbox(context.Context, *api.ListPodSandboxRequest) (*api.ListPodSandboxResponse, error)
	ListContainers(context.Context, *api.ListContainersRequest) (*api.ListContainersResponse, error)
	ListContainerStats(context.Context, *api.ListContainerStatsRequest) (*api.ListContainerStatsResponse, error)
}

// Layered is implemented by runtimes that can report writable layers without other statistics. WritableLayers reports
// the layers of all running containers. For a layer with very many files, it counts only a part of them. WholeLayer
// counts all files of one container's writable layer, and reports whether the count is complete.
type Layered interface {
	WritableLayers(context.Context) (map[string]*api.FilesystemUsage, error)
	WholeLayer(ctx context.Context, id string) (layer *api.FilesystemUsage, whole bool, err error)
}

// A Runner calls a function for each running container. The function must not change or keep the container.
type Runner interface {
	ForEachRunning(f func(*api.Container))
}

// Images returns the locations of images.
type Images interface {
	ImageFsInfo(context.Context, *api.ImageFsInfoRequest) (*api.ImageFsInfoResponse, error)
}

// Config configures New.
type Config struct {
	NodeName string
	Runtime  Runtime
	Images   Images                                          // if nil, the summary does not contain the file systems of the runtime
	Pods     func(f func(pod *v1.Pod, status *v1.PodStatus)) // calls the function f for each pod; the function must not keep the status
	Sampler  *sample.Sampler                                 // if nil, the figures of pods come from the runtime
	Host     *host.Host                                      // if nil, the node is not measured
	Trees    *disk.Trees                                     // if nil, directories are not measured
	// Volumes measures volumes that are not directories on the node. It must not wait for a volume that does not
	// respond. It may be nil.
	Volumes func(context.Context, []*v1.Pod) map[types.UID][]stats.VolumeStats

	Root    string            // the kubelet's root directory, whose file system counts as the node's
	LogsDir string            // directory that contains the logs of pods
	System  map[string]string // cgroups of the system, by the names that a kubelet uses for them
	Started time.Time         // when the agent started
}

// Usage measures pods and the node. Its methods may be called concurrently.
type Usage struct {
	c        Config
	cpuRates cpuRates
	topology func() (cores, sockets int) // cached

	mu          sync.Mutex     // not locked during a measurement
	last        *joinedFigures // the last result, for other callers with the same sample
	forgetTimer *time.Timer
	gatherings  []*gathering // in progress
}

// New returns a Usage. It makes no measurement.
func New(c Config) *Usage {
	u := &Usage{c: c}
	if c.Host != nil {
		u.topology = sync.OnceValues(c.Host.Topology)
	}
	return u
}

// A container contains the figures and names of a running container. Storage also uses it for ended containers.
type container struct {
	id, name, pod, namespace, uid, image, sandbox string
	started                                       time.Time
	group                                         *sample.Group        // nil if the cgroup of the container is not visible
	reported                                      *api.ContainerStats  // the runtime's figures; nil if the runtime was not queried for them
	layer                                         *api.FilesystemUsage // the writable layer; nil if the runtime was not queried for it
	nanoCores                                     *uint64              // from reported
}

// A pod contains the names and the containers of a pod that has at least one container.
type pod struct {
	name, namespace, uid, sandbox string
	created                       int64        // when the newest container was created, in nanoseconds since 1970
	spec                          *v1.Pod      // the desired pod; nil if unknown
	started                       *metav1.Time // nil if unknown
	group                         *sample.Group
	containers                    []*container
}

// A joinedFigures is the result of a gathering. It must not be changed.
type joinedFigures struct {
	disks  bool           // whether the runtime was queried for writable layers
	sample *sample.Sample // nil if cgroups are not read
	pods   []*pod
	byUID  map[string]*pod
	byID   map[string]*container
}

// eachRunning calls f for each running container.
func (u *Usage) eachRunning(ctx context.Context, f func(*api.Container)) error {
	if r, ok := u.c.Runtime.(Runner); ok {
		r.ForEachRunning(f)
		return nil
	}
	list, err := u.c.Runtime.ListContainers(ctx, &api.ListContainersRequest{
		Filter: &api.ContainerFilter{State: &api.ContainerStateValue{State: api.ContainerState_CONTAINER_RUNNING}}})
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	for _, c := range list.Containers {
		f(c)
	}
	return nil
}

// queryRuntime requests figures from the runtime. The parameter alone is true if some container has no visible
// cgroup. In this case queryRuntime requests all figures. Otherwise, if j.disks is true, it requests the writable
// layers. A runtime that implements Layered returns these without other figures.
func (u *Usage) queryRuntime(ctx context.Context, j *joinedFigures, alone bool) error {
	layered, ok := u.c.Runtime.(Layered)
	switch {
	case alone || j.disks && !ok:
		return u.addReported(ctx, j)
	case j.disks:
		layers, err := layered.WritableLayers(ctx)
		if err != nil {
			return fmt.Errorf("measure containers: %w", err)
		}
		for id, l := range layers {
			if c := j.byID[id]; c != nil {
				c.layer = l
			}
		}
	}
	return nil
}

func (j *joinedFigures) add(c *api.Container) {
	k := &container{id: c.Id, name: c.Labels[keys.ContainerName], pod: c.Labels[keys.PodName], namespace: c.Labels[keys.PodNamespace],
		uid: c.Labels[keys.PodUID], image: cmp.Or(c.GetImage().GetUserSpecifiedImage(),
			c.GetImage().GetImage(), c.ImageRef), sandbox: c.PodSandboxId}
	p := j.byUID[k.uid]
	if p == nil {
		p = &pod{name: k.pod, namespace: k.namespace, uid: k.uid}
		j.byUID[k.uid], j.pods = p, append(j.pods, p)
	}
	if c.CreatedAt >= p.created {
		p.sandbox, p.created = k.sandbox, c.CreatedAt
	}
	p.containers, j.byID[k.id] = append(p.containers, k), k
}

// addStatuses adds the specs and start times of pods and containers.
func (u *Usage) addStatuses(j *joinedFigures) {
	u.c.Pods(func(spec *v1.Pod, status *v1.PodStatus) {
		p := j.byUID[string(spec.UID)]
		if p == nil {
			return
		}
		p.spec, p.started = spec, status.StartTime
		for s := range podspec.Statuses(status) {
			if c := j.byID[bareID(s.ContainerID)]; c != nil && s.State.Running != nil {
				c.started = s.State.Running.StartedAt.Time
			}
		}
	})
}

// addGroups adds the cgroups, and reports whether any container has no cgroup.
func (j *joinedFigures) addGroups() (alone bool) {
	if j.sample == nil {
		return len(j.byID) > 0
	}
	for i := range j.sample.Groups {
		g := &j.sample.Groups[i]
		switch g.Kind {
		case sample.Pod:
			if p := j.byUID[g.Pod]; p != nil {
				p.group = g
			}
		case sample.Container:
			if c := j.byID[g.Container]; c != nil {
				c.group = g
			}
		}
	}
	for _, c := range j.byID {
		alone = alone || c.group == nil
	}
	return alone
}

// addReported adds the runtime's figures.
func (u *Usage) addReported(ctx context.Context, j *joinedFigures) error {
	list, err := u.c.Runtime.ListContainerStats(ctx, &api.ListContainerStatsRequest{})
	if err != nil {
		return fmt.Errorf("measure containers: %w", err)
	}
	used := u.cpuRates.nanoCores(list.Stats)
	for _, s := range list.Stats {
		if c := j.byID[s.GetAttributes().GetId()]; c != nil {
			c.reported, c.layer, c.nanoCores = s, s.WritableLayer, used[c.id]
		}
	}
	return nil
}

// bareID returns the ID in runtime://ID.
func bareID(id string) string {
	for i := 0; i+2 < len(id); i++ {
		if id[i:i+3] == "://" {
			return id[i+3:]
		}
	}
	return id
}
