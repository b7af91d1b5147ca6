package realtime_test

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	podrealtime "github.com/islet-edge/islet/agent/pod/spec/realtime"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podtest"
	"github.com/islet-edge/islet/internal/realtime"
)

// TestHook checks that a container gets the settings of its annotations, that pods that have ended take no bandwidth, and that an
// annotation that was changed after admission is checked.
func TestHook(t *testing.T) {
	deadline := func(name, value string) *v1.Pod {
		return podtest.New(name, podtest.Annotation(keys.ConfigSource, keys.SourceFile), podtest.Annotation(keys.Scheduler+"c", value))
	}
	const half = "DEADLINE runtime=5ms deadline=10ms period=10ms"
	ended, running := deadline("ended", half), deadline("running", "DEADLINE runtime=1ms period=100ms")
	ended.Status.Phase = v1.PodSucceeded
	h := podrealtime.Hook{
		Pods: func() []*v1.Pod { return []*v1.Pod{ended, running} },
		Node: func() realtime.Node {
			return realtime.Node{Kernel: realtime.Kernel{Throttle: 1, Period: 1}, Config: config.RealTime{Bandwidth: 51,
				Pods: []config.RealTimePods{{Namespaces: []string{"*"}, Sources: []string{"file"}, Policies: []string{"DEADLINE"}}}}}
		},
	}
	configure := func(pod *v1.Pod) (*api.ContainerConfig, error) {
		out := &api.ContainerConfig{Annotations: map[string]string{}}
		return out, h.Container(t.Context(), pod, &pod.Spec.Containers[0], out)
	}
	pod := deadline("a", half)
	if out, err := configure(pod); err != nil || out.Annotations[keys.ContainerScheduler] != half {
		t.Errorf("annotations %q: %v", out.Annotations, err)
	}
	pod.Annotations[keys.Scheduler+"c"] = "DEADLINE runtime=6ms period=10ms"
	var refusal *realtime.Refusal
	if out, err := configure(pod); !errors.As(err, &refusal) || refusal.Reason != realtime.Unavailable || len(out.Annotations) != 0 {
		t.Errorf("a changed annotation: %q, %v", out.Annotations, err)
	}
	if out, err := configure(podtest.New("plain")); err != nil || len(out.Annotations) != 0 {
		t.Errorf("a pod without annotations: %q, %v", out.Annotations, err)
	}
}
