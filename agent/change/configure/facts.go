package configure

import (
	"context"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/internal/podspec"
)

// Node contains functions that return the node's state. A Keeper compares that state with the state before the trial.
type Node struct {
	Link              func() link.State
	Ready             func(context.Context) []string // reasons why the node is not ready
	CheckPodsKnown    func() error                   // returns an error while the running pods are unknown
	PressuresMeasured func() bool                    // whether Pressures has been measured since the agent started
	Pressures         func() []v1.NodeConditionType
	CheckReachable    func(context.Context) error // returns an error if the kubelet API is not reachable
	SourcesReported   func() bool                 // whether all sources have reported their pods
	Pods              func() []*v1.Pod
	HeldPods          func() []types.UID // pods that are only kept because of the trial
	BundleTrials      BundleTrials
	ReadyConfirmed    func(*v1.Pod) bool // whether the agent on trial has itself confirmed that this pod is ready
}

// BundleTrials prevents trials of bundles during the trial of a configuration: each trial would otherwise count the other's pods.
// *bundle.Node implements it.
type BundleTrials interface {
	// HoldTrials prevents trials of bundles until ReleaseTrials is called. It returns false and does nothing if a bundle is on trial,
	// unless id is this bundle's own configuration.
	HoldTrials(id string) bool
	ReleaseTrials()
}

// Connect sets the functions that return the node's state. It is called once, before Run.
func (k *Keeper) Connect(n Node) { k.c.Node = n }

// collectFacts returns the current state of the node. An empty Link, Node or Reach means that there is no problem.
func (n *Node) collectFacts(ctx context.Context) (f trial.Facts) {
	if s := n.Link(); s.Phase != link.Up && s.Phase != link.Standalone {
		f.Link = s.Reason + ": " + s.Message
	}
	f.Node = strings.Join(n.Ready(ctx), ", ")
	switch err := n.CheckPodsKnown(); {
	case err != nil:
		f.Node = err.Error()
	case !n.PressuresMeasured():
		f.Node = "the machine's resources have not been measured yet"
	}
	if err := n.CheckReachable(ctx); err != nil {
		f.Reach = err.Error()
	}
	for _, p := range n.Pressures() {
		f.Pressure = append(f.Pressure, string(p))
	}
	addPodFacts(&f, n.Pods(), n.ReadyConfirmed)
	for _, uid := range n.HeldPods() {
		f.Held = append(f.Held, string(uid))
	}
	return f
}

// activePods returns the pods that are not being deleted and have not ended.
func activePods(all []*v1.Pod) (out []*v1.Pod) {
	for _, p := range all {
		if p.DeletionTimestamp == nil && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
			out = append(out, p)
		}
	}
	return out
}

// addPodFacts adds the state of the pods to the facts. Pods that ended by themselves or were deleted are not counted as
// failures of the node.
func addPodFacts(f *trial.Facts, all []*v1.Pod, confirmed func(*v1.Pod) bool) {
	f.Pods, f.Rejected, f.Known = map[string]bool{}, map[string]string{}, map[string]bool{}
	f.Names, f.Probes = map[string]string{}, map[string]string{}
	for _, p := range activePods(all) {
		f.Pods[string(p.UID)] = podspec.IsReady(&p.Status) && confirmed(p)
		f.Names[string(p.UID)] = p.Namespace + "/" + p.Name
		if kind := probeKind(p); kind != "" {
			f.Probes[string(p.UID)] = kind
		}
	}
	for _, p := range all {
		f.Known[string(p.UID)] = true
		if p.DeletionTimestamp == nil && p.Status.Phase == v1.PodFailed && p.Status.Reason != "" && p.Status.Reason != deadlineReason {
			f.Rejected[string(p.UID)] = p.Status.Reason + ": " + p.Status.Message
		}
	}
}

// probeKind returns the kind of a pod's readiness probes, or "" if it has none.
func probeKind(p *v1.Pod) (kind string) {
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		switch r := c.ReadinessProbe; {
		case r == nil:
		case r.Exec == nil:
			return trial.ProbeNetwork
		default:
			kind = trial.ProbeExec
		}
	}
	return kind
}

// deadlineReason is the reason in the status of a pod that exceeded its activeDeadlineSeconds.
const deadlineReason = "DeadlineExceeded"
