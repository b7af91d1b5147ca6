package worker

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/hook"
	"github.com/islet-edge/islet/agent/plan"
	"github.com/islet-edge/islet/agent/translate"
	"github.com/islet-edge/islet/runtime/cri"
)

// Timeouts of calls to the runtime. Pulls have none.
const (
	sandboxTimeout = 4 * time.Minute
	callTimeout    = 2 * time.Minute
)

// ExecutorConfig is what an Executor needs.
type ExecutorConfig struct {
	Runtime cri.Runtime
	Images  cri.Images
	Imports Imports // nil: no archives are ever imported
	Hooks   hook.Chain
	Node    func() translate.Node // the node as it is now
	Objects translate.Objects     // nil: there are none
	Keyring Keyring               // nil: nobody has credentials
	Events  Events                // nil: nobody wants to know
	Starts  int                   // sandboxes, and containers, that start at once; 0: twice the CPUs
	Log     *slog.Logger
}

// An Executor carries out actions with the runtime and the hooks. Its methods
// may be called from any goroutine.
type Executor struct {
	cfg        ExecutorConfig
	images     *images
	sandboxes  chan struct{} // a place for each sandbox that may start now
	containers chan struct{} // the same for containers, so that none waits for all sandboxes
}

// NewExecutor starts nothing.
func NewExecutor(cfg ExecutorConfig) *Executor {
	if cfg.Objects == nil {
		cfg.Objects = translate.NoObjects{}
	}
	if cfg.Events == nil {
		cfg.Events = noEvents{}
	}
	if cfg.Starts == 0 {
		cfg.Starts = 2 * runtime.GOMAXPROCS(0)
	}
	return &Executor{cfg: cfg, images: newImages(cfg), sandboxes: make(chan struct{}, cfg.Starts), containers: make(chan struct{}, cfg.Starts)}
}

// Do carries out one action, and tells events of it.
func (e *Executor) Do(ctx context.Context, in plan.Input, a plan.Action) error {
	err := e.do(ctx, in, a)
	if err != nil {
		e.failed(ctx, in, a, err)
	}
	return err
}

func (e *Executor) do(ctx context.Context, in plan.Input, a plan.Action) error {
	switch a.Op {
	case plan.RunSandbox:
		return e.runSandbox(ctx, in, a)
	case plan.StopSandbox:
		return e.stopSandbox(ctx, a.ID)
	case plan.RemoveSandbox:
		return e.removeSandbox(ctx, a.ID)
	case plan.StartContainer:
		return e.startContainer(ctx, in, a)
	case plan.StopContainer:
		return e.stopContainer(ctx, in, a)
	case plan.RemoveContainer:
		return e.removeContainer(ctx, in, a)
	}
	return fmt.Errorf("no way to carry out %v", a.Op)
}

// Release gives back what the hooks hold for a pod that is gone.
func (e *Executor) Release(ctx context.Context, uid types.UID) error {
	return e.cfg.Hooks.Release(ctx, uid)
}

// ImagesChanged forgets which images could not be pulled: the next start asks
// again. Set.Retry then wakes the pods that wait.
func (e *Executor) ImagesChanged() { e.images.forget() }

// known returns the pod with what only the node knows of it in its status: its
// addresses. The wanted pod itself is never changed.
func known(pod *v1.Pod, seen plan.Observed, n translate.Node) *v1.Pod {
	out := *pod
	ips := n.IPs
	if !pod.Spec.HostNetwork {
		sb, _ := seen.Sandbox()
		ips = sb.IPs
	}
	out.Status.PodIPs, out.Status.HostIPs = nil, nil
	for _, ip := range ips {
		out.Status.PodIPs = append(out.Status.PodIPs, v1.PodIP{IP: ip})
	}
	for _, ip := range n.IPs {
		out.Status.HostIPs = append(out.Status.HostIPs, v1.HostIP{IP: ip})
	}
	if len(ips) > 0 {
		out.Status.PodIP = ips[0]
	}
	if len(n.IPs) > 0 {
		out.Status.HostIP = n.IPs[0]
	}
	return &out
}

// sandboxConfig is the same for every call about one sandbox.
func (e *Executor) sandboxConfig(ctx context.Context, pod *v1.Pod, n translate.Node, attempt uint32, started time.Time) (*api.PodSandboxConfig, error) {
	cfg, err := translate.Sandbox(pod, n, attempt, started)
	if err != nil {
		return nil, err
	}
	return cfg, e.cfg.Hooks.Sandbox(ctx, pod, cfg)
}

// container finds a container of the pod by name.
func container(pod *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		if i := slices.IndexFunc(list, func(c v1.Container) bool { return c.Name == name }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

// enter waits for a place; the caller gives it back.
func enter(ctx context.Context, places chan struct{}) (leave func(), err error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// gone turns "there is no such thing" into success: that is what was wanted.
func gone(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
