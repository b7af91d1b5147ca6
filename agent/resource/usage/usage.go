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

// A Runtime says which containers there are.
type Runtime interface {
	ListPodSandbox(context.Context, *api.ListPodSandboxRequest) (*api.ListPodSandboxResponse, error)
	ListContainers(context.Context, *api.ListContainersRequest) (*api.ListContainersResponse, error)
	ListContainerStats(context.Context, *api.ListContainerStatsRequest) (*api.ListContainerStatsResponse, error)
}

// A Layered runtime says what containers that run have written, by their IDs, without measuring
// the rest. Of very many files it counts a part, for figures; of one container it counts all,
// and reports whether that is the whole.
type Layered interface {
	WritableLayers(context.Context) (map[string]*api.FilesystemUsage, error)
	WholeLayer(ctx context.Context, id string) (layer *api.FilesystemUsage, whole bool, err error)
}

// A Runner calls f with each container that runs, which f neither changes nor keeps.
type Runner interface {
	Running(f func(*api.Container))
}

// Images says where images are.
type Images interface {
	ImageFsInfo(context.Context, *api.ImageFsInfoRequest) (*api.ImageFsInfoResponse, error)
}

// Config is what New needs.
type Config struct {
	NodeName string
	Runtime  Runtime
	Images   Images                                          // nil: the summary has no file systems of the runtime
	Pods     func(f func(pod *v1.Pod, status *v1.PodStatus)) // calls f with each; f does not keep the status
	Sampler  *sample.Sampler                                 // nil: pods have the figures that the runtime tells
	Host     *host.Host                                      // nil: the node is not measured
	Trees    *disk.Trees                                     // nil: no directories are measured
	// Volumes measures those of pods that are not directories of the node; nil: nobody does. It
	// waits for none that does not answer.
	Volumes func(context.Context, []*v1.Pod) map[types.UID][]stats.VolumeStats

	Root    string            // where pods' volumes are; its file system is the node's
	LogsDir string            // of pods
	System  map[string]string // cgroups of system containers, by a kubelet's names for such
	Started time.Time         // of the agent
}

// Usage answers. Its methods may be called at once.
type Usage struct {
	c        Config
	rates    rates
	topology func() (cores, sockets int) // read once

	mu     sync.Mutex // is held by nobody who waits
	last   *joined    // with the newest sample, for others who ask with it
	forget *time.Timer
	looks  []*look // under way
}

// New prepares a Usage; it asks nothing yet.
func New(c Config) *Usage {
	u := &Usage{c: c}
	if c.Host != nil {
		u.topology = sync.OnceValues(c.Host.Topology)
	}
	return u
}

// A container that runs, with who it is.
type container struct {
	id, name, pod, namespace, uid, image, sandbox string
	started                                       time.Time
	group                                         *sample.Group        // nil: it has no cgroup that can be seen
	told                                          *api.ContainerStats  // by the runtime; nil: it was not asked
	layer                                         *api.FilesystemUsage // what it has written; nil: the runtime was not asked
	nanoCores                                     *uint64              // from told
}

// A pod with a container that runs, or had one.
type pod struct {
	name, namespace, uid, sandbox string
	created                       int64        // of its newest container, in nanoseconds since 1970
	spec                          *v1.Pod      // as it is wanted; nil: it is not known
	started                       *metav1.Time // nil: it is not known
	group                         *sample.Group
	containers                    []*container
}

// A joined is one look at everything. Nobody changes it.
type joined struct {
	disks  bool           // the runtime was asked for layers
	sample *sample.Sample // nil: cgroups are not read
	pods   []*pod
	byUID  map[string]*pod
	byID   map[string]*container
}

// running calls f with the containers that run.
func (u *Usage) running(ctx context.Context, f func(*api.Container)) error {
	if r, ok := u.c.Runtime.(Runner); ok {
		r.Running(f)
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

// ask asks the runtime for what cgroups do not say: layers, or everything when a container has
// no cgroup.
func (u *Usage) ask(ctx context.Context, j *joined, alone bool) error {
	layered, ok := u.c.Runtime.(Layered)
	switch {
	case alone || j.disks && !ok:
		return u.told(ctx, j)
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

func (j *joined) add(c *api.Container) {
	k := &container{id: c.Id, name: c.Labels[keys.ContainerName], pod: c.Labels[keys.PodName], namespace: c.Labels[keys.PodNamespace],
		uid: c.Labels[keys.PodUID], image: cmp.Or(c.GetImage().GetUserSpecifiedImage(), c.GetImage().GetImage(), c.ImageRef), sandbox: c.PodSandboxId}
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

// known adds what the agent knows of pods: when containers started.
func (u *Usage) known(j *joined) {
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

// groups adds the cgroups, and says whether a container has none.
func (j *joined) groups() (alone bool) {
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

// told adds what the runtime says of containers.
func (u *Usage) told(ctx context.Context, j *joined) error {
	list, err := u.c.Runtime.ListContainerStats(ctx, &api.ListContainerStatsRequest{})
	if err != nil {
		return fmt.Errorf("measure containers: %w", err)
	}
	used := u.rates.of(list.Stats)
	for _, s := range list.Stats {
		if c := j.byID[s.GetAttributes().GetId()]; c != nil {
			c.told, c.layer, c.nanoCores = s, s.WritableLayer, used[c.id]
		}
	}
	return nil
}

// bareID is the ID in runtime://ID.
func bareID(id string) string {
	for i := 0; i+2 < len(id); i++ {
		if id[i:i+3] == "://" {
			return id[i+3:]
		}
	}
	return id
}
