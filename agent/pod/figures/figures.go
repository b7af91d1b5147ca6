package figures

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/life/worker"
	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/podspec"
)

// Figures contains the metrics of pods. Their names are the same as in a kubelet.
// https://kubernetes.io/docs/reference/instrumentation/metrics/
type Figures struct {
	operations                              Operations
	actionDuration                          *prometheus.HistogramVec
	pods, podsFailed                        prometheus.Counter
	userNamespaces, userNamespaceErrors     prometheus.Counter // starts of sandboxes with a user namespace: all, and the failed ones
	containers                              containers
	startSinceSeen, startSinceCreation, sli prometheus.Histogram // durations of pod starts
	countedSince                            time.Time            // pods that started earlier are not counted
	Startup                                 *Startup
	*Admissions
	*Resizes
	*Watches
	*Evictions
	*ImageVolumes
}

// Operations counts calls to the runtime. *operations.Operations implements it.
type Operations interface {
	Collectors() []prometheus.Collector
	// Pulling returns the duration of the pod's image pulls since the given time, at which the pod was created.
	Pulling(pod *v1.Pod, created time.Time) time.Duration
}

// New returns Figures that start at zero. The parameter began is the time at which the agent started. The parameter
// unified is true on a machine with cgroup v2.
func New(o Operations, unified bool, began time.Time) *Figures {
	counter := func(name, help string) prometheus.CounterOpts { return prometheus.CounterOpts{Name: name, Help: help} }
	start := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help,
			Buckets: []float64{.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700,
				3600}})
	}
	f := &Figures{
		operations: o, countedSince: time.Now(), Resizes: newResizes(), Watches: newWatches(), Evictions: newEvictions(),
		ImageVolumes: newImageVolumes(), Admissions: newAdmissions(), containers: newContainers(), Startup: newStartup(began),
		actionDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_pod_worker_duration_seconds",
			Help: "duration in seconds of an action of a pod's worker", Buckets: prometheus.DefBuckets}, []string{"operation_type"}),
		pods: prometheus.NewCounter(counter("kubelet_started_pods_total", "number of pod sandboxes that were started")),
		podsFailed: prometheus.NewCounter(counter("kubelet_started_pods_errors_total",
			"number of pod sandboxes that could not be started")),
		userNamespaces: prometheus.NewCounter(counter("kubelet_started_user_namespaced_pods_total",
			"number of started sandboxes of pods with a user namespace")),
		userNamespaceErrors: prometheus.NewCounter(counter("kubelet_started_user_namespaced_pods_errors_total",
			"number of failed starts of sandboxes of pods with a user namespace")),
		startSinceSeen: start("kubelet_pod_start_duration_seconds",
			"duration in seconds from when the node first saw a pod until all its containers ran"),
		startSinceCreation: start("kubelet_pod_start_total_duration_seconds",
			"duration in seconds from the creation of a pod until all its containers ran"),
		sli: start("kubelet_pod_start_sli_duration_seconds",
			"duration in seconds from the creation of a pod until all its containers ran, without image pulls and init containers"),
	}
	f.version.Set(1)
	if unified {
		f.version.Set(2)
	}
	return f
}

// Pods counts pods at each scrape. *pods.Pods implements it.
type Pods interface {
	Resizing() (pending map[[2]string]int, inProgress int) // see Resizing
	Working() map[[3]string]int                            // see Working
}

// Desired counts pods that were restarted. *desired.Desired implements it.
type Desired interface {
	Restarted() (static, fromAPI int) // see Restarted
}

// Collectors returns all metrics. For the parameter seen, see LastSeen.
func (f *Figures) Collectors(pods Pods, wanted Desired, seen func() time.Time) []prometheus.Collector {
	all := append(f.operations.Collectors(), f.actionDuration, f.pods, f.podsFailed, f.userNamespaces, f.userNamespaceErrors,
		f.startSinceSeen, f.startSinceCreation, f.sli)
	all = append(append(all, f.containers.collectors()...), f.Admissions.collectors()...)
	all = append(append(all, f.Watches.collectors()...), f.Evictions.collectors()...)
	all = append(append(all, f.ImageVolumes.collectors()...), f.Startup.collectors()...)
	all = append(all, Working(pods.Working), Restarted(wanted.Restarted), LastSeen(seen))
	return append(all, f.Resizes.collectors(pods.Resizing)...)
}

// An Actor carries out the actions of workers and counts them.
type Actor struct {
	Executor *worker.Executor
	Figures  *Figures
}

// Do implements worker.Actor.
func (m Actor) Do(ctx context.Context, in plan.Input, a plan.Action) error {
	begin := time.Now()
	err := m.Executor.Do(ctx, in, a)
	took := time.Since(begin).Seconds()
	switch a.Op {
	case plan.RunSandbox:
		m.Figures.actionDuration.WithLabelValues("create").Observe(took)
		m.Figures.countSandbox(in.Want, err)
		m.Figures.inPod.Observe(float64(len(in.Want.Spec.Containers)))
	case plan.StartContainer:
		m.Figures.actionDuration.WithLabelValues("sync").Observe(took)
		kind := containerType(in.Want, a.Container)
		m.Figures.containers.started.WithLabelValues(kind).Inc()
		if err != nil {
			m.Figures.containers.failed.WithLabelValues(kind, problemReason(err)).Inc()
		}
		m.Figures.countVolumes(in.Want, a.Container, err)
	case plan.PostStart:
		if err != nil {
			m.Figures.containers.failed.WithLabelValues(containerType(in.Want, a.Container), problemReason(err)).Inc()
		}
	case plan.Resize:
		m.Figures.observeResize(time.Since(begin), err)
	case plan.StopSandbox, plan.StopContainer:
		m.Figures.actionDuration.WithLabelValues("kill").Observe(took)
	}
	return err
}

// countSandbox counts an attempt to start a sandbox.
func (f *Figures) countSandbox(pod *v1.Pod, err error) {
	count := func(all, failed prometheus.Counter) {
		all.Inc()
		if err != nil {
			failed.Inc()
		}
	}
	count(f.pods, f.podsFailed)
	if podspec.HasUserNamespace(&pod.Spec) {
		count(f.userNamespaces, f.userNamespaceErrors)
	}
}

func containerType(pod *v1.Pod, name string) string {
	if pod == nil {
		return "container"
	}
	switch kind, c := podspec.Find(&pod.Spec, name); {
	case c == nil || kind == podspec.Ephemeral:
		return "ephemeral_container"
	case kind == podspec.Main:
		return "container"
	}
	return "init_container"
}

// problemReason returns a kubelet's reason for a container that could not be started.
func problemReason(err error) string {
	var p *worker.Problem
	if errors.As(err, &p) {
		return p.Reason
	}
	return "Unknown"
}

// RecordStatus is called with each new status of a pod. It counts the containers that have ended. When all
// containers of the pod run for the first time, it records how long the start has taken.
func (f *Figures) RecordStatus(in plan.Input, before, now *v1.PodStatus) {
	f.containers.countEnds(before, now)
	old := func(c v1.ContainerStatus) bool { return c.State.Running.StartedAt.Time.Before(f.countedSince) }
	if allRun(before) || !allRun(now) || slices.ContainsFunc(now.ContainerStatuses, old) {
		return
	}
	at := time.Now()
	if !in.Started.IsZero() {
		f.startSinceSeen.Observe(at.Sub(in.Started).Seconds())
	}
	created := in.Want.CreationTimestamp.Time
	if created.IsZero() { // a static pod: its creation time is not known
		return
	}
	f.startSinceCreation.Observe(at.Sub(created).Seconds())
	f.sli.Observe((at.Sub(created) - f.operations.Pulling(in.Want, created) - initTime(now)).Seconds())
}

// allRun reports whether all containers run and none has restarted.
func allRun(s *v1.PodStatus) bool {
	return s.Phase == v1.PodRunning && !slices.ContainsFunc(s.ContainerStatuses, func(c v1.ContainerStatus) bool {
		return c.State.Running == nil || c.RestartCount > 0
	})
}

// initTime returns the total run time of the init containers that have ended.
func initTime(s *v1.PodStatus) (d time.Duration) {
	for _, c := range s.InitContainerStatuses {
		if end := c.State.Terminated; end != nil {
			d += end.FinishedAt.Sub(end.StartedAt.Time)
		}
	}
	return d
}
