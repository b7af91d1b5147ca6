package worker

import (
	"context"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/spec/translate"
	"github.com/islet-edge/islet/internal/keys"
)

// runSandbox stops the older sandboxes of the pod, which releases their networks, and runs a new one. It
// acquires a slot for the start only after the hooks have prepared the pod, because the hooks may wait for
// the network.
func (e *Executor) runSandbox(ctx context.Context, in plan.Input, a plan.Action) error {
	if !in.Want.Spec.HostNetwork {
		if err := e.cfg.Network(); err != nil {
			return newProblem(plan.NetworkNotReady, "network is not ready: %w", err)
		}
	}
	if len(in.Observed.Sandboxes) > 0 {
		podEventRecorder{e.cfg.Events, in.Want, ""}.recordNormal(eventSandboxChanged,
			"Pod sandbox changed, it will be killed and re-created.")
	}
	for _, sb := range in.Observed.Sandboxes {
		if err := e.stopSandbox(ctx, sb.ID); err != nil {
			return err
		}
	}
	n := e.cfg.Node()
	pod := withAddresses(in.Want, in.Observed, n)
	if err := e.preparePod(ctx, pod, nil); err != nil {
		return hookProblem(plan.FailedMount, "%w", err)
	}
	release, err := acquireSlot(ctx, e.sandboxSlots, startSlotTime)
	if err != nil {
		return err
	}
	defer release()
	ctx, stop := context.WithTimeout(ctx, sandboxTimeout)
	defer stop()
	n = e.cfg.Node() // the network may have come during the preparation
	pod = withAddresses(in.Want, in.Observed, n)
	cfg, err := e.sandboxConfig(ctx, pod, n, a.Attempt, in.Started)
	if err != nil {
		return newProblem(plan.FailedCreatePodSandBox, "%w", err) // the error is a complete message of a kubelet
	}
	e.warnOfDNS(pod, n)
	if a.Hash != "" {
		cfg.Annotations[keys.SpecHash] = a.Hash
	}
	handler, err := e.cfg.Classes.RuntimeHandler(pod)
	if err != nil {
		return newProblem(plan.FailedCreatePodSandBox, "%w", err)
	}
	if _, err := e.cfg.Runtime.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Config: cfg, RuntimeHandler: handler}); err != nil {
		return newProblem(plan.FailedCreatePodSandBox, "%w", err) // an event adds a kubelet's words
	}
	if e.cfg.CheckDNS != nil {
		e.cfg.CheckDNS(n)
	}
	return nil
}

// warnOfDNS records an event for each DNS setting of the pod that is not applied. A node without a control plane has no
// cluster DNS, so it records no event about a missing one.
func (e *Executor) warnOfDNS(pod *v1.Pod, n translate.Node) {
	for _, w := range translate.DNSWarnings(pod, n) {
		if w.Reason != translate.MissingClusterDNS || !e.cfg.Standalone {
			podEventRecorder{e.cfg.Events, pod, ""}.recordWarning(w.Reason, "%s", w.Message)
		}
	}
}
