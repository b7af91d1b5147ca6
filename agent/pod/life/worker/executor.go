package worker

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/hook"
	"github.com/islet-edge/islet/agent/pod/life/features"
	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/spec/translate"
	"github.com/islet-edge/islet/internal/event"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/runtime/cri"
)

// Timeouts of calls to the runtime. Pulls have none.
const (
	sandboxTimeout = 4 * time.Minute
	callTimeout    = 2 * time.Minute
)

// ExecutorConfig is what an Executor needs.
type ExecutorConfig struct {
	Runtime  cri.Runtime
	Images   cri.Images
	Imports  Imports // nil: no archives are imported
	Hooks    hook.Chain
	Node     func() translate.Node // the node as it is now
	Network  func() error          // why pods cannot get a network now, in a kubelet's words; nil: they can
	Objects  translate.Objects     // nil: there are none
	Alone    bool                  // the node has no control plane
	Files    translate.Files       // nil: there are none
	Keyring  Keyring               // nil: there are no credentials
	Verifier PullVerifier          // nil: every pod may use every image on the node
	Links    Links                 // nil: logs have no links
	Classes  Classes               // nil: the name of a RuntimeClass is its handler's
	Events   event.Sink            // nil: events are dropped
	Hooking  Lifecycle             // nil: no lifecycle hooks run
	Starts   int                   // how many sandboxes, and how many containers, start at once; 0: twice the CPUs
	Log      *slog.Logger
}

// Classes resolve a pod's RuntimeClass to the runtime handler of its sandbox. An empty handler is the node's
// default.
type Classes interface {
	RuntimeHandler(pod *v1.Pod) (string, error)
}

// Links are symbolic links to the logs of containers. collect.Links is one.
type Links interface {
	Link(pod *v1.Pod, container, id, log string) error
	Unlink(log string) error
}

type noLinks struct{}

func (noLinks) Link(*v1.Pod, string, string, string) error { return nil }
func (noLinks) Unlink(string) error                        { return nil }

// An Executor carries out actions with the runtime and the hooks. Its methods
// may be called from any goroutine.
type Executor struct {
	cfg        ExecutorConfig
	runsHooks  bool // lifecycle hooks run
	images     *images
	sandboxes  chan struct{} // its capacity is how many sandboxes start at once
	containers chan struct{} // the same of containers, so that none waits for all sandboxes
	prepares   chan struct{} // the same of pods whose hooks prepare
	fetches    chan struct{} // the same of pods from the API server, whose hooks may wait for the network
}

// NewExecutor starts nothing.
func NewExecutor(cfg ExecutorConfig) *Executor {
	if cfg.Objects == nil {
		cfg.Objects = translate.NoObjects{}
	}
	if cfg.Files == nil {
		cfg.Files = translate.NoFiles{}
	}
	if cfg.Links == nil {
		cfg.Links = noLinks{}
	}
	if cfg.Classes == nil {
		cfg.Classes = features.ClassIsHandler{}
	}
	if cfg.Verifier == nil {
		cfg.Verifier = allowAll{}
	}
	runs := cfg.Hooking != nil
	if !runs {
		cfg.Hooking = noLifecycle{}
	}
	if cfg.Events == nil {
		cfg.Events = event.Discard{}
	}
	if cfg.Network == nil {
		cfg.Network = func() error { return nil }
	}
	if cfg.Starts == 0 {
		cfg.Starts = 2 * runtime.GOMAXPROCS(0)
	}
	return &Executor{
		cfg: cfg, runsHooks: runs, images: newImages(cfg),
		sandboxes: make(chan struct{}, cfg.Starts), containers: make(chan struct{}, cfg.Starts),
		prepares: make(chan struct{}, preparing*cfg.Starts), fetches: make(chan struct{}, preparing*cfg.Starts),
	}
}

// Do carries out one action, and records its events.
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
	case plan.PostStart:
		return e.postStart(ctx, in, a)
	case plan.PreStop:
		return e.preStop(ctx, in, a)
	case plan.RemoveContainer:
		return e.removeContainer(ctx, in, a)
	case plan.Resize:
		return e.resize(ctx, in, a)
	case plan.Update:
		return e.hooks(ctx, in, e.cfg.Hooks.Update)
	case plan.Ended:
		return e.hooks(ctx, in, e.cfg.Hooks.Ended)
	case plan.Forget:
		ctx, stop := context.WithTimeout(ctx, callTimeout)
		defer stop()
		return e.cfg.Hooks.Release(ctx, in.UID)
	}
	return fmt.Errorf("no way to carry out %v", a.Op)
}

// hooks runs a step that consists of hooks only.
func (e *Executor) hooks(ctx context.Context, in plan.Input, step func(context.Context, *v1.Pod) error) error {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	return step(ctx, withAddresses(in.Want, in.Seen, e.cfg.Node()))
}

// prepare runs the hooks that prepare the pod and, if ctr is not nil, a container that is about to start. Only so
// many pods prepare at once. A pod whose hooks wait for the network soon frees its place for the next one, and
// pods from the API server have places of their own.
func (e *Executor) prepare(ctx context.Context, pod *v1.Pod, ctr *v1.Container) error {
	places := e.prepares
	if pod.Annotations[keys.ConfigSource] == keys.SourceAPI {
		places = e.fetches
	}
	leave, err := enter(ctx, places, prepareTime)
	if err != nil {
		return err
	}
	defer leave()
	ctx, stop := context.WithTimeout(ctx, sandboxTimeout)
	defer stop()
	if err := e.cfg.Hooks.Prepare(ctx, pod); err != nil || ctr == nil {
		return err
	}
	return e.cfg.Hooks.Start(ctx, pod, ctr)
}

// ImagesChanged forgets which images could not be pulled: the next start pulls again. Set.Retry then wakes the
// pods that wait.
func (e *Executor) ImagesChanged() { e.images.forget() }

// withAddresses returns a copy of the pod whose status has the addresses of the pod and the node.
func withAddresses(pod *v1.Pod, seen plan.Observed, n translate.Node) *v1.Pod {
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

// sandboxConfig returns the configuration of a sandbox. It is the same in every call about that sandbox.
func (e *Executor) sandboxConfig(
	ctx context.Context, pod *v1.Pod, n translate.Node, attempt uint32, started time.Time,
) (*api.PodSandboxConfig, error) {
	cfg, err := translate.Sandbox(pod, n, attempt, started)
	if err != nil {
		return nil, err
	}
	return cfg, e.cfg.Hooks.Sandbox(ctx, pod, cfg)
}

// preparing is how many pods may prepare for each that may start.
const preparing = 4

// A start or a preparation that takes longer waits for another machine, or because of what its pod contains. Its
// place is then free for others.
const (
	placeTime   = 30 * time.Second       // of a start
	prepareTime = 500 * time.Millisecond // of a preparation, most of which take a few milliseconds
)

// enter waits for a place. The caller frees it by calling leave. After the time most it is free in any case.
func enter(ctx context.Context, places chan struct{}, most time.Duration) (leave func(), err error) {
	select {
	case places <- struct{}{}:
		free := sync.OnceFunc(func() { <-places })
		late := time.AfterFunc(most, free)
		return func() { late.Stop(); free() }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ignoreNotFound returns err, or nil if err is that the object to remove does not exist.
func ignoreNotFound(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
