package observe

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/sorting"
)

// A listing contains the entries of one pod in the runtime's lists.
type listing struct {
	sandboxes  []*api.PodSandbox
	containers []*api.Container
}

// listPods returns the sandboxes and containers with the given labels, by the UID of their pod. Without labels, it returns
// the sandboxes and containers of all pods.
func (o *Observer) listPods(ctx context.Context, match map[string]string) (map[types.UID]*listing, error) {
	sandboxes, err := o.cfg.Runtime.ListPodSandbox(ctx, &api.ListPodSandboxRequest{Filter: &api.PodSandboxFilter{LabelSelector: match}})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	containers, err := o.cfg.Runtime.ListContainers(ctx, &api.ListContainersRequest{Filter: &api.ContainerFilter{LabelSelector: match}})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	found := map[types.UID]*listing{}
	entry := func(uid string) *listing {
		if found[types.UID(uid)] == nil {
			found[types.UID(uid)] = &listing{}
		}
		return found[types.UID(uid)]
	}
	for _, sb := range sandboxes.Items {
		if uid := sb.Labels[keys.PodUID]; uid != "" { // without the label, another program created it
			l := entry(uid)
			l.sandboxes = append(l.sandboxes, sb)
		}
	}
	for _, c := range containers.Containers {
		if uid := c.Labels[keys.PodUID]; uid != "" {
			l := entry(uid)
			l.containers = append(l.containers, c)
		}
	}
	return found, nil
}

// equalsView reports whether a view and the listing contain the same sandboxes and containers, in the same
// states.
func (l *listing) equalsView(seen plan.Observed) bool {
	if len(l.sandboxes) != len(seen.Sandboxes) || len(l.containers) != len(seen.Containers) {
		return false
	}
	for _, sb := range l.sandboxes {
		if !slices.ContainsFunc(seen.Sandboxes, func(s plan.Sandbox) bool { return s.ID == sb.Id && s.Ready == isReady(sb.State) }) {
			return false
		}
	}
	for _, c := range l.containers {
		if old := findContainer(seen, c.Id); old == nil || old.State != convertState(c.State) {
			return false
		}
	}
	return true
}

// readPod returns the view of one pod. Sandboxes and containers whose state has not changed are copied from the former view.
func (o *Observer) readPod(ctx context.Context, uid types.UID, before plan.Observed) (plan.Observed, error) {
	found, err := o.listPods(ctx, map[string]string{keys.PodUID: string(uid)})
	if err != nil {
		return plan.Observed{}, err
	}
	l := found[uid]
	if l == nil {
		return plan.Observed{}, nil
	}
	var seen plan.Observed
	for _, sb := range l.sandboxes {
		i := slices.IndexFunc(before.Sandboxes, func(s plan.Sandbox) bool { return s.ID == sb.Id && s.Ready == isReady(sb.State) })
		if i >= 0 {
			seen.Sandboxes = append(seen.Sandboxes, before.Sandboxes[i])
			continue
		}
		s, err := o.readSandbox(ctx, sb)
		if err != nil {
			return seen, err
		}
		if s != nil {
			seen.Sandboxes = append(seen.Sandboxes, *s)
		}
	}
	for _, c := range l.containers {
		if old := findContainer(before, c.Id); old != nil && old.State == convertState(c.State) && !o.mayChange(*old) {
			seen.Containers = append(seen.Containers, *old)
			continue
		}
		s, err := o.readContainer(ctx, c)
		if err != nil {
			return seen, err
		}
		if s != nil {
			// Take only the reason from the new status, because the file of the termination message may be gone.
			if old := findContainer(before, c.Id); old != nil && o.mayChange(*old) {
				kept := *old
				kept.Reason, s = s.Reason, &kept
			}
			seen.Containers = append(seen.Containers, *s)
		}
	}
	sorting.By(seen.Sandboxes, func(a, b plan.Sandbox) int { return cmp.Compare(a.Attempt, b.Attempt) })
	sorting.By(seen.Containers, func(a, b plan.Container) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Attempt, b.Attempt))
	})
	return seen, nil
}

func findContainer(seen plan.Observed, id string) *plan.Container {
	for i := range seen.Containers {
		if seen.Containers[i].ID == id {
			return &seen.Containers[i]
		}
	}
	return nil
}

// readSandbox reads a sandbox. It returns nil if the sandbox no longer exists.
func (o *Observer) readSandbox(ctx context.Context, sb *api.PodSandbox) (*plan.Sandbox, error) {
	r, err := o.cfg.Runtime.PodSandboxStatus(ctx, &api.PodSandboxStatusRequest{PodSandboxId: sb.Id})
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("status of sandbox %s: %w", sb.Id, err)
	}
	st := r.GetStatus()
	s := &plan.Sandbox{
		ID: st.GetId(), Ready: isReady(st.GetState()), CreatedAt: convertTime(st.GetCreatedAt()),
		Source: st.GetAnnotations()[keys.ConfigSource],
	}
	if m := st.GetMetadata(); m != nil {
		s.Attempt, s.Namespace, s.Name = m.Attempt, m.Namespace, m.Name
	}
	s.Hash = st.GetAnnotations()[keys.SpecHash]
	if n, err := strconv.ParseInt(st.GetAnnotations()[keys.Started], 10, 64); err == nil {
		s.Started = time.Unix(n, 0)
	}
	if n := st.GetNetwork(); n != nil && net.ParseIP(n.Ip) != nil {
		s.IPs = append(s.IPs, n.Ip)
		for _, a := range n.AdditionalIps {
			s.IPs = append(s.IPs, a.Ip)
		}
	}
	return s, nil
}

// readContainer reads a container. It returns nil if the container no longer exists.
func (o *Observer) readContainer(ctx context.Context, c *api.Container) (*plan.Container, error) {
	r, err := o.cfg.Runtime.ContainerStatus(ctx, &api.ContainerStatusRequest{ContainerId: c.Id})
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("status of container %s: %w", c.Id, err)
	}
	st := r.GetStatus()
	notes := st.GetAnnotations()
	out := &plan.Container{
		ID: st.GetId(), Name: st.GetMetadata().GetName(), Attempt: st.GetMetadata().GetAttempt(), SandboxID: c.PodSandboxId,
		State: convertState(st.GetState()), CreatedAt: convertTime(st.GetCreatedAt()),
		StartedAt: convertTime(st.GetStartedAt()), FinishedAt: convertTime(st.GetFinishedAt()),
		ExitCode: st.GetExitCode(), Reason: st.GetReason(), Message: st.GetMessage(), LogPath: st.GetLogPath(),
		Image:   cmp.Or(st.GetImage().GetUserSpecifiedImage(), st.GetImage().GetImage()),
		ImageID: cmp.Or(st.GetImageRef(), st.GetImageId()),
		Hash:    notes[keys.ContainerHash], RestartResources: notes[keys.RestartResources],
		Scheduler: notes[keys.ContainerScheduler],
	}
	if l := st.GetResources().GetLinux(); l != nil {
		held := plan.FromCRI(l.CpuShares, l.CpuQuota, l.CpuPeriod, l.MemoryLimitInBytes)
		held.MemoryRequest, _ = strconv.ParseInt(notes[keys.MemoryRequest], 10, 64) // 0, which means unknown, on an error
		out.Resources = &held
	}
	out.Streak, out.Round = readCount(st, keys.Streak), readCount(st, keys.Round)
	_, out.PostStart = notes[keys.PostStart]
	if u := st.GetUser().GetLinux(); u != nil {
		out.User = &plan.User{UID: u.Uid, GID: u.Gid, Groups: u.SupplementalGroups}
	}
	if s := st.GetStopSignal(); s != api.Signal_SIGNAL_RUNTIME_DEFAULT { // a runtime that does not report the signal sends this value
		out.StopSignal = strings.NewReplacer("SIGNAL_", "", "PLUS", "+", "MINUS", "-").Replace(s.String())
	}
	if out.State == plan.Exited {
		if m := terminationMessage(o.cfg.Root, st); m != "" {
			out.Message = m
		}
	}
	return out, nil
}

// readCount returns the number in an annotation. It returns 0 if there is none.
func readCount(st *api.ContainerStatus, key string) uint32 {
	n, err := strconv.ParseUint(st.GetAnnotations()[key], 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

func isReady(s api.PodSandboxState) bool { return s == api.PodSandboxState_SANDBOX_READY }

func convertState(s api.ContainerState) plan.State {
	switch s {
	case api.ContainerState_CONTAINER_CREATED:
		return plan.Created
	case api.ContainerState_CONTAINER_RUNNING:
		return plan.Running
	case api.ContainerState_CONTAINER_EXITED:
		return plan.Exited
	}
	return plan.Unknown
}

// convertTime converts a time of the CRI, in nanoseconds. 0 means that the event has not happened, and becomes
// the zero time.
func convertTime(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
