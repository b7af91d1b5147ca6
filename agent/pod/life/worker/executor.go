package worker

import (
	"context"
	"errors"
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

// ExecutorConfig configures an Executor. The fields Imports, Network, Objects, Files, Keyring, Verifier,
// Links, Classes, Events and Lifecycle may be nil.
type ExecutorConfig struct {
	Runtime cri.Runtime
	Images  cri.Images
	Imports Imports // nil if no image archives are imported
	Hooks   hook.Chain
	Node    func() translate.Node // returns the present state of the node
	// CheckDNS is called after a sandbox was created. Its argument is the result of Node that determined the DNS servers of the sandbox.
	// CheckDNS may be nil.
	CheckDNS   func(translate.Node)
	Network    func() error // returns why pods cannot get a network now, in a kubelet's words, or nil
	Objects    translate.Objects
	Standalone bool // the node has no control plane
	Files      translate.Files
	Keyring    Keyring
	Verifier   PullVerifier // if it is nil, every pod may use every image on the node
	Links      Links        // if it is nil, no links to logs are created
	Classes    Classes      // if it is nil, the name of a RuntimeClass is used as the name of the handler
	Events     event.Sink
	Lifecycle  Lifecycle // if it is nil, lifecycle hooks do not run, and interruptions are not recorded
	MaxStarts  int       // maximum number of concurrent starts of sandboxes, and of containers; 0 means twice the number of CPUs
	Log        *slog.Logger
}

// Classes returns the runtime handler for a pod's RuntimeClass. An empty result stands for the node's default handler.
type Classes interface {
	RuntimeHandler(pod *v1.Pod) (string, error)
}

// Links creates and removes the symbolic links to the logs of containers. collect.Logs implements it.
type Links interface {
	Link(pod *v1.Pod, container, id, log string) error
	Unlink(log string) error
	// Retire is called for the log of a container of a removed pod. The log and its link are removed later, after the pod has
	// been released. If Retire returns an error, they must be removed at once.
	Retire(log string) error
}

type noLinks struct{}

func (noLinks) Link(*v1.Pod, string, string, string) error { return nil }
func (noLinks) Unlink(string) error                        { return nil }
func (noLinks) Retire(string) error                        { return errors.ErrUnsupported }

// An Executor carries out actions with the runtime and the hooks. Its methods may be called from any goroutine.
type Executor struct {
	cfg       ExecutorConfig
	runsHooks bool // false if ExecutorConfig.Lifecycle was nil
	images    *images

	// Semaphores. Sandboxes and containers have separate semaphores, so that the starts of many sandboxes do not delay
	// containers.
	sandboxSlots   chan struct{} // for starts of sandboxes
	containerSlots chan struct{} // for starts of containers
	prepareSlots   chan struct{} // for the preparation of pods that are not from the API server
	fetchSlots     chan struct{} // for the preparation of pods from the API server, whose hooks may wait for the network
}

// NewExecutor returns an Executor.
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
	runs := cfg.Lifecycle != nil
	if !runs {
		cfg.Lifecycle = noLifecycle{}
	}
	if cfg.Events == nil {
		cfg.Events = event.Discard{}
	}
	if cfg.Network == nil {
		cfg.Network = func() error { return nil }
	}
	if cfg.MaxStarts == 0 {
		cfg.MaxStarts = 2 * runtime.GOMAXPROCS(0)
	}
	return &Executor{
		cfg: cfg, runsHooks: runs, images: newImages(cfg),
		sandboxSlots: make(chan struct{}, cfg.MaxStarts), containerSlots: make(chan struct{}, cfg.MaxStarts),
		prepareSlots: make(chan struct{}, preparesPerStart*cfg.MaxStarts), fetchSlots: make(chan struct{}, preparesPerStart*cfg.MaxStarts),
	}
}

// Do implements Actor. It also records the events about the action.
func (e *Executor) Do(ctx context.Context, in plan.Input, a plan.Action) error {
	err := e.carryOut(ctx, in, a)
	if err != nil {
		e.recordFailed(ctx, in, a, err)
	}
	return err
}

func (e *Executor) carryOut(ctx context.Context, in plan.Input, a plan.Action) error {
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
		return e.resizePod(ctx, in, a)
	case plan.Update:
		ctx, stop := context.WithTimeout(ctx, callTimeout)
		defer stop()
		return e.cfg.Hooks.Update(ctx, withAddresses(in.Want, in.Observed, e.cfg.Node()))
	case plan.Ended:
		return e.cfg.Hooks.Ended(ctx, withAddresses(in.Want, in.Observed, e.cfg.Node()))
	case plan.Unmount:
		return e.cfg.Hooks.Unmount(ctx, in.UID)
	case plan.Forget:
		return e.cfg.Hooks.Release(ctx, in.UID)
	}
	return fmt.Errorf("unknown action %v", a.Op)
}

// preparePod runs the Prepare hooks of the pod. If ctr is not nil, it also runs the Start hooks of this container, which
// is about to start. The number of concurrent preparations is limited, with separate slots for pods from the API
// server. A pod whose hooks wait for the network releases its slot after prepareSlotTime.
func (e *Executor) preparePod(ctx context.Context, pod *v1.Pod, ctr *v1.Container) error {
	slots := e.prepareSlots
	if pod.Annotations[keys.ConfigSource] == keys.SourceAPI {
		slots = e.fetchSlots
	}
	release, err := acquireSlot(ctx, slots, prepareSlotTime)
	if err != nil {
		return err
	}
	defer release()
	ctx, stop := context.WithTimeout(ctx, sandboxTimeout)
	defer stop()
	if err := e.cfg.Hooks.Prepare(ctx, pod); err != nil || ctr == nil {
		return err
	}
	return e.cfg.Hooks.Start(ctx, pod, ctr)
}

// ImagesChanged ends the back-off of all images, so that the next start of a container pulls its image at once. The caller
// then wakes the waiting pods with Set.Retry.
func (e *Executor) ImagesChanged() { e.images.clearBackoffs() }

// withAddresses returns a copy of the pod, with the addresses of the pod and the node in its status.
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

// sandboxConfig returns the configuration of a sandbox. All calls for the same sandbox return the same configuration.
func (e *Executor) sandboxConfig(
	ctx context.Context, pod *v1.Pod, n translate.Node, attempt uint32, started time.Time,
) (*api.PodSandboxConfig, error) {
	cfg, err := translate.Sandbox(pod, n, attempt, started)
	if err != nil {
		return nil, err
	}
	return cfg, e.cfg.Hooks.Sandbox(ctx, pod, cfg)
}

// preparesPerStart is the number of slots for preparations for each slot for starts.
const preparesPerStart = 4

// Time limits for occupying a slot. After this time the slot is released, although the start or the preparation
// continues. Such a start or preparation waits for another machine, or is slow because of the pod itself. It must not
// delay other pods.
const (
	startSlotTime   = 30 * time.Second
	prepareSlotTime = 500 * time.Millisecond // most preparations take a few milliseconds
)

// acquireSlot waits for a slot. The caller releases the slot with the returned function. If the caller has not
// done so after the time limit, the slot is released automatically.
func acquireSlot(ctx context.Context, slots chan struct{}, limit time.Duration) (release func(), err error) {
	select {
	case slots <- struct{}{}:
		free := sync.OnceFunc(func() { <-slots })
		late := time.AfterFunc(limit, free)
		return func() { late.Stop(); free() }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ignoreNotFound returns err, or nil if err says that the object does not exist.
func ignoreNotFound(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
