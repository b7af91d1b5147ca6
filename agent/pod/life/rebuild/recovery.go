package rebuild

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
)

// Manifest is the hook that writes the annotation keys.Manifest of a sandbox, from which Rebuild restores a lost store. A
// pod that a person applied has no other copy, and the sources of other pods may be damaged or unreachable.
type Manifest struct{}

// Name returns the hook's name.
func (Manifest) Name() string { return "manifest" }

// Sandbox adds the pod's manifest, without its status.
func (Manifest) Sandbox(_ context.Context, pod *v1.Pod, out *api.PodSandboxConfig) error {
	kept := *pod
	kept.Status = v1.PodStatus{}
	b, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[keys.Manifest] = string(b)
	return nil
}

// Config configures Rebuild.
type Config struct {
	Runtime Runtime
	Desired Desired
	Store   Store
	// Environments stores the environments of running containers. Environments is nil if the objects from which these
	// environments were made are still stored.
	Environments Environments
	Log          *slog.Logger
}

// Environments stores the environments of containers, as KEY=VALUE. *objects.Objects implements it.
type Environments interface {
	KeepEnvironment(uid types.UID, container string, env []string)
}

// Runtime is the part of the CRI that Rebuild uses.
type Runtime interface {
	ListPodSandbox(context.Context, *api.ListPodSandboxRequest) (*api.ListPodSandboxResponse, error)
	PodSandboxStatus(context.Context, *api.PodSandboxStatusRequest) (*api.PodSandboxStatusResponse, error)
	ListContainers(context.Context, *api.ListContainersRequest) (*api.ListContainersResponse, error)
	ContainerStatus(context.Context, *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error)
}

// Desired receives the pods. *desired.Desired implements it.
type Desired interface {
	Rewrite(context.Context) error
	Adopt(context.Context, []desired.Recovered) error
}

// Store receives the addresses in use, and reports when the database was created again. *store.Store
// implements it.
type Store interface {
	Rebuilt() (aside string, broken bool)
	// IsNew reports whether nothing is stored yet. After MarkFilled it returns false.
	IsNew(context.Context) (bool, error)
	MarkFilled(context.Context) error
	WatchRepairs() <-chan struct{}
	RewriteRows(context.Context) error
	AddLease(ctx context.Context, addr netip.Addr, sandbox string) error
}

// Begin rebuilds a store that was damaged or deleted. It is called as soon as the runtime responds. It
// restores only the pods in the runtime. All other pods come from their sources. On a new node the store is
// also empty. But there are no pods in the runtime, so this store does not count as deleted.
func Begin(ctx context.Context, c Config) {
	aside, broken := c.Store.Rebuilt()
	empty, err := c.Store.IsNew(ctx)
	switch {
	case err != nil:
		c.Log.Error("cannot find out whether the database was deleted", "error", err)
		return
	case broken:
		c.Log.Error("the database was broken, rebuilding it from the sources and from the running pods", "set aside", aside)
	case !empty:
		return
	}
	found, err := Rebuild(ctx, c)
	if found > 0 && !broken {
		c.Log.Error("the database was empty, because it was deleted or its -wal file is damaged: it is rebuilt from the sources and from "+
			"the running pods, and the objects of islet apply are lost", "pods", found)
	}
	if err != nil {
		c.Log.Error("cannot recover all data from the running pods", "error", err)
		return
	}
	if err := c.Store.MarkFilled(ctx); err != nil {
		c.Log.Error("cannot record that the database is complete: the next start rebuilds it again", "error", err)
	}
}

// Rebuild restores a lost store from the pods in the runtime. It stores the pods, each under its source, and the addresses
// in use. It returns the number of pods that it found.
func Rebuild(ctx context.Context, c Config) (found int, err error) {
	list, err := c.Runtime.ListPodSandbox(ctx, &api.ListPodSandboxRequest{})
	if err != nil {
		return 0, err
	}
	made, err := c.Runtime.ListContainers(ctx, &api.ListContainersRequest{})
	if err != nil {
		return 0, err
	}
	keepEnvironments(ctx, c, made.Containers)
	var errs []error
	var pods []desired.Recovered
	known := map[string]bool{}
	for _, s := range list.Items {
		if s.State == api.PodSandboxState_SANDBOX_READY {
			errs = append(errs, keepAddresses(ctx, c, s.Id))
		}
		text := s.Annotations[keys.Manifest]
		if uid := s.Metadata.GetUid(); text == "" || known[uid] {
			continue
		}
		known[s.Metadata.GetUid()] = true
		pod := &v1.Pod{}
		if err := json.Unmarshal([]byte(text), pod); err != nil {
			c.Log.Error("a pod cannot be restored from the manifest in its sandbox",
				"pod", s.Metadata.GetNamespace()+"/"+s.Metadata.GetName(), "uid", s.Metadata.GetUid(), "error", err)
			continue // without an error, because a repetition would have the same result
		}
		restoreImages(pod, made.Containers)
		pods = append(pods, desired.Recovered{Source: pod.Annotations[keys.ConfigSource], Pod: pod})
	}
	return len(pods), errors.Join(append(errs, c.Desired.Adopt(ctx, pods))...)
}

// A Refill restores the database if it is lost while the agent runs.
type Refill struct{ c Config }

// New returns a Refill.
func New(c Config) *Refill { return &Refill{c} }

// Run restores the database each time it was created again. After an error, it tries again at growing intervals. It returns when ctx ends.
func (r *Refill) Run(ctx context.Context) error {
	var retry <-chan time.Time
	pause := firstRetry
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.c.Store.WatchRepairs():
			pause = firstRetry
		case <-retry:
		}
		retry = nil
		if err := r.refill(ctx); err != nil && ctx.Err() == nil {
			r.c.Log.Error("cannot restore all data that the database lost: restoring is retried", "error", err)
			retry = time.After(pause)
			pause = min(2*pause, lastRetry)
		}
	}
}

// Times between two attempts to restore the database.
const (
	firstRetry = time.Minute
	lastRetry  = time.Hour
)

// refill stores all rows that this process has in memory, and the rows of the running pods. The pods come first, because the store accepts
// no row of an unknown pod.
func (r *Refill) refill(ctx context.Context) error {
	err := r.c.Desired.Rewrite(ctx)
	_, missed := Rebuild(ctx, r.c)
	if err = errors.Join(err, missed, r.c.Store.RewriteRows(ctx)); err != nil {
		return err
	}
	return r.c.Store.MarkFilled(ctx)
}

// restoreImages sets the images of a pod's containers to the images with which the containers were last created. The manifest
// in the sandbox is older: the images may have been changed since the sandbox was created.
func restoreImages(pod *v1.Pod, made []*api.Container) {
	for _, ctr := range podspec.Containers(&pod.Spec) {
		var last uint32
		for _, c := range made {
			of, image := types.UID(c.Labels[keys.PodUID]), c.Image.GetUserSpecifiedImage()
			if m := c.Metadata; of == pod.UID && image != "" && m.GetName() == ctr.Name && m.GetAttempt() >= last {
				last, ctr.Image = m.GetAttempt(), image
			}
		}
	}
}

func keepAddresses(ctx context.Context, c Config, sandbox string) error {
	st, err := c.Runtime.PodSandboxStatus(ctx, &api.PodSandboxStatusRequest{PodSandboxId: sandbox})
	if err != nil {
		return err
	}
	network := st.GetStatus().GetNetwork()
	ips := []string{network.GetIp()}
	for _, ip := range network.GetAdditionalIps() {
		ips = append(ips, ip.Ip)
	}
	for _, ip := range ips {
		addr, err := netip.ParseAddr(ip)
		if err != nil {
			continue // a pod on the host's network has no address of its own
		}
		if err := c.Store.AddLease(ctx, addr, sandbox); err != nil {
			return fmt.Errorf("store the address %s of sandbox %s: %w", addr, sandbox, err)
		}
	}
	return nil
}
