package stats

import (
	"context"
	"net/http"
	"runtime"
	"strings"

	v1 "k8s.io/api/core/v1"
	crapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/metrics/exposition"
)

// Metrics serves /metrics, the metrics of the agent and of its parts.
func (s *Stats) Metrics(w http.ResponseWriter, r *http.Request) {
	counted, err := s.gather()
	if err != nil {
		response.WriteError(w, err)
		return
	}
	exposition.Serve(w, r, append(s.ownMetrics(r.Context()), counted.Samples()...), counted)
}

// ResourceMetrics serves /metrics/resource, which metrics-server reads.
func (s *Stats) ResourceMetrics(w http.ResponseWriter, r *http.Request) {
	look, err := s.Usage.StreamSummary(r.Context(), true)
	if err != nil {
		s.Log.Warn("cannot measure for /metrics/resource", "error", err)
	}
	exposition.ServeResource(w, r, look, err)
}

// ContainerMetrics serves /metrics/cadvisor.
func (s *Stats) ContainerMetrics(w http.ResponseWriter, r *http.Request) {
	subjects, err := s.Usage.Subjects(r.Context())
	if err != nil {
		s.Log.Warn("cannot measure for /metrics/cadvisor", "error", err)
	}
	exposition.ServeContainers(w, r, s.Usage.Machine(r.Context()), subjects, err)
}

// ProbeMetrics serves /metrics/probes.
func (s *Stats) ProbeMetrics(w http.ResponseWriter, r *http.Request) {
	exposition.Serve(w, r, []exposition.Sample{exposition.StartTime(s.Started)}, s.probes)
}

// ownMetrics returns the metrics of the agent itself.
func (s *Stats) ownMetrics(ctx context.Context) []exposition.Sample {
	major, minor, _ := strings.Cut(strings.TrimPrefix(s.KubeVersion, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	out := []exposition.Sample{
		{Name: "kubernetes_build_info", Help: "versions of the node as labels, the value is always 1", Value: 1,
			Labels: []string{"build_date", "", "compiler", runtime.Compiler,
				"git_commit", "", "git_tree_state", "", "git_version", s.KubeVersion, "go_version", runtime.Version(),
				"major", major, "minor", minor, "platform", runtime.GOOS + "/" + runtime.GOARCH}},
		{Name: "islet_build_info", Help: "version of islet as a label, the value is always 1", Value: 1,
			Labels: []string{"version", s.Version}},
		{Name: "kubelet_node_name", Help: "name of the node as a label, the value is always 1", Value: 1,
			Labels: []string{"node", s.NodeName}},
	}
	desired, active, debugged := map[bool]int{}, map[bool]int{}, 0
	s.eachPhase(func(p *v1.Pod, phase v1.PodPhase) {
		debugged += len(p.Spec.EphemeralContainers)
		static := p.Annotations[keys.ConfigSource] != keys.SourceAPI
		desired[static]++
		if phase != v1.PodSucceeded && phase != v1.PodFailed {
			active[static]++
		}
	})
	for _, static := range []bool{false, true} {
		label := []string{"static", ""} // as in a kubelet, which has no value "false"
		if static {
			label[1] = "true"
		}
		out = append(out,
			exposition.Sample{
				Name: "kubelet_desired_pods", Help: "number of pods that the node has to run", Labels: label,
				Value: float64(desired[static]),
			},
			exposition.Sample{
				Name: "kubelet_active_pods", Help: "number of pods that have not ended", Labels: label,
				Value: float64(active[static]),
			})
	}
	out = append(out, exposition.Sample{
		Name: "kubelet_managed_ephemeral_containers", Help: "number of ephemeral containers in the pods of the node",
		Value: float64(debugged),
	})
	out = append(out, s.runningMetrics(ctx)...)
	if s.LinkMetrics != nil { // with a control plane
		out = append(out, exposition.Sample{
			Name: "kubelet_mirror_pods", Help: "number of mirror pods of the node: one for each pod that is not from the API server",
			Value: float64(desired[true]),
		})
		out = append(out, s.LinkMetrics()...)
	}
	return out
}

// eachPhase calls f with each pod and its current phase. It does not copy the pods if Pods has the method ForEach.
func (s *Stats) eachPhase(f func(*v1.Pod, v1.PodPhase)) {
	if p, ok := s.Pods.(interface {
		ForEach(func(*v1.Pod, *v1.PodStatus))
	}); ok {
		p.ForEach(func(pod *v1.Pod, status *v1.PodStatus) { f(pod, status.Phase) })
		return
	}
	for _, p := range s.Pods.List() {
		f(p, p.Status.Phase)
	}
}

// A Counter is a runtime that counts its sandboxes and containers without listing them.
type Counter interface {
	CountContainers() (ready int, states map[crapi.ContainerState]int)
}

// runningMetrics returns the metrics about running sandboxes and containers, or nil if the runtime returns an error.
func (s *Stats) runningMetrics(ctx context.Context) (out []exposition.Sample) {
	pods, containers, err := s.countRunning(ctx)
	if err != nil {
		return nil
	}
	out = append(out, exposition.Sample{Name: "kubelet_running_pods", Help: "number of pods with a running sandbox", Value: float64(pods)})
	for state := range crapi.ContainerState(len(crapi.ContainerState_name)) {
		if n := containers[state]; n > 0 || state == crapi.ContainerState_CONTAINER_RUNNING {
			out = append(out, exposition.Sample{Name: "kubelet_running_containers", Help: "number of containers by state",
				Labels: []string{"container_state", strings.ToLower(strings.TrimPrefix(state.String(), "CONTAINER_"))}, Value: float64(n)})
		}
	}
	return out
}

// countRunning returns the number of ready sandboxes and the numbers of containers by state.
func (s *Stats) countRunning(ctx context.Context) (int, map[crapi.ContainerState]int, error) {
	if c, ok := s.Runtime.(Counter); ok {
		ready, states := c.CountContainers()
		return ready, states, nil
	}
	sandboxes, err := s.Runtime.ListPodSandbox(ctx, &crapi.ListPodSandboxRequest{Filter: &crapi.PodSandboxFilter{
		State: &crapi.PodSandboxStateValue{State: crapi.PodSandboxState_SANDBOX_READY}}})
	if err != nil {
		return 0, nil, err
	}
	containers, err := s.Runtime.ListContainers(ctx, &crapi.ListContainersRequest{})
	if err != nil {
		return 0, nil, err
	}
	states := map[crapi.ContainerState]int{}
	for _, c := range containers.Containers {
		states[c.State]++
	}
	return len(sandboxes.Items), states, nil
}
