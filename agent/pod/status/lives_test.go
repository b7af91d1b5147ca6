package status

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/fieldtest"
)

var update = flag.Bool("update", false, "write testdata/*.yaml and docs/pod-status.md")

// life is the input of a status at one time in a pod's life.
type life struct {
	in     plan.Input
	before v1.PodStatus
}

// fullPod returns a pod with all features that a status shows.
func fullPod() *v1.Pod {
	p := newPod(v1.RestartPolicyAlways)
	p.Generation = 4
	p.Spec.InitContainers = []v1.Container{{Name: "setup", Image: "setup:1"}, {Name: "proxy", Image: "proxy:1", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}}
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "tools:1"}}}
	c := &p.Spec.Containers[0]
	c.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "conf", MountPath: "/etc/app", ReadOnly: true, RecursiveReadOnly: new(v1.RecursiveReadOnlyIfPossible)}}
	c.Lifecycle = &v1.Lifecycle{StopSignal: new(v1.SIGUSR1)}
	p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/lb"}}
	return p
}

// This helper returns typical inputs. For each of them, testdata has a file with the expected status.
func lives() map[string]life {
	up := func(c plan.Container) plan.Container {
		c.Image, c.ImageID, c.User = "docker.io/library/"+c.Name+":1", "docker.io/library/"+c.Name+"@sha256:0123", &plan.User{UID: 1000, GID: 2000, Groups: []int64{2000, 3000}}
		return c
	}
	killed := ended("c", 137, 3)
	killed.Reason, killed.Message = "OOMKilled", "the last words"
	again := ended("c", 1, 3)
	again.ID, again.Attempt = "c2", 1
	signalled := up(running("c", 0))
	signalled.StopSignal = "SIGUSR1"
	hostly := newPod(v1.RestartPolicyAlways)
	hostly.Spec.HostNetwork = true
	short := newPod(v1.RestartPolicyNever)
	short.Spec.ActiveDeadlineSeconds = new(int64(60))
	ran := v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "c", ContainerID: "containerd://c", State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: *toSeconds(t0)}}}}}
	gone := observedWith()
	gone.Containers = []plan.Container{{ID: "c", Name: "c", SandboxID: "s", State: plan.Unknown, StartedAt: t0}}
	noNetwork := map[plan.Key]plan.Failure{{Op: plan.RunSandbox}: {N: 1, Reason: plan.NetworkNotReady, Message: "network is not ready: no CNI configuration", At: t0}}
	fresh := fullPod()
	fresh.Spec.EphemeralContainers = nil
	return map[string]life{
		"creating":         {in: plan.Input{Want: newPod(v1.RestartPolicyAlways), Now: t0}},
		"no-network":       {in: plan.Input{Want: newPod(v1.RestartPolicyAlways), Now: t0, Failed: noNetwork}},
		"pull-failed":      {in: plan.Input{Want: newPod(v1.RestartPolicyAlways), Now: t0, Observed: observedWith(), Failed: failed(plan.ErrImagePull, 0)}},
		"pull-back-off":    {in: plan.Input{Want: newPod(v1.RestartPolicyAlways), Now: t0, Observed: observedWith(), Failed: failed(plan.ErrImagePull, 5*time.Second)}},
		"initializing":     {in: plan.Input{Want: fresh, Now: t0, Started: t0, Observed: observedWith(up(running("setup", 0)))}},
		"ready":            {in: plan.Input{Want: fullPod(), Now: t0, Started: t0, Observed: observedWith(up(ended("setup", 0, 0)), up(running("proxy", 2)), signalled, up(running("debug", 0)))}},
		"crash-loop":       {in: plan.Input{Want: newPod(v1.RestartPolicyAlways), Now: t0, Started: t0, Observed: observedWith(killed)}},
		"restarted":        {in: plan.Input{Want: newPod(v1.RestartPolicyAlways), Now: t0, Started: t0, Observed: observedWith(killed, up(running("c", 1)))}},
		"crashed-again":    {in: plan.Input{Want: newPod(v1.RestartPolicyAlways), Now: t0, Started: t0, Observed: observedWith(killed, again)}},
		"succeeded":        {in: plan.Input{Want: newPod(v1.RestartPolicyNever), Now: t0, Started: t0, Observed: observedWith(ended("c", 0, 0))}},
		"failed":           {in: plan.Input{Want: newPod(v1.RestartPolicyNever), Now: t0, Started: t0, Observed: observedWith(ended("c", 3, 0))}},
		"past-deadline":    {in: plan.Input{Want: short, Now: t0, Started: t0.Add(-time.Hour), Observed: observedWith(ended("c", 143, 0))}},
		"unknown":          {in: plan.Input{Want: newPod(v1.RestartPolicyAlways), Now: t0, Started: t0, Observed: gone}},
		"lost":             {in: plan.Input{Want: newPod(v1.RestartPolicyNever), Now: t0, Started: t0, Deleting: true}, before: ran},
		"preempted":        {in: plan.Input{Want: newPod(v1.RestartPolicyAlways), Now: t0, Started: t0, End: &plan.End{Reason: plan.Preempting, Message: "Preempted in order to admit critical pod"}, Observed: observedWith(ended("c", 143, 0))}},
		"host-network":     {in: plan.Input{Want: hostly, Now: t0, Started: t0, Observed: observedWith(running("c", 0))}},
		"config-error":     {in: plan.Input{Want: newPod(v1.RestartPolicyAlways), Now: t0, Observed: observedWith(), Failed: failed(plan.CreateContainerConfigError, 0)}},
		"never-pull":       {in: plan.Input{Want: newPod(v1.RestartPolicyAlways), Now: t0, Observed: observedWith(), Failed: failed(plan.ErrImageNeverPull, 0)}},
		"cannot-be-run":    {in: plan.Input{Want: newPod(v1.RestartPolicyAlways), Now: t0, Observed: observedWith(), Failed: failed(plan.RunContainerError, 0)}},
		"probe-not-passed": {in: plan.Input{Want: newPod(v1.RestartPolicyAlways), Now: t0, Started: t0, Observed: observedWith(running("c", 0)), Health: map[string]plan.Health{"c": {Started: true}}}},
	}
}

func statusOf(l life) v1.PodStatus {
	return Compute(l.in, l.before, Host{IPs: []string{"192.168.0.2", "fd00::2"}, Runtime: "containerd", ReadOnlyTrees: func(*v1.Pod) bool { return true }})
}

// TestLives compares the complete statuses with the files in testdata.
func TestLives(t *testing.T) {
	for name, l := range lives() {
		have, err := yaml.Marshal(statusOf(l))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name+".yaml")
		if *update {
			if err := os.WriteFile(file, have, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(file); err != nil || string(want) != string(have) {
			t.Errorf("%s (%v): go test ./agent/pod/status -run TestLives -update, and review the changes:\n%s", file, err, have)
		}
	}
}

// This helper records the nonempty fields of a value for each type.
func filled(v reflect.Value, in map[reflect.Type]map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			filled(v.Elem(), in)
		}
	case reflect.Slice:
		for i := range v.Len() {
			filled(v.Index(i), in)
		}
	case reflect.Struct:
		if in[v.Type()] == nil {
			in[v.Type()] = map[string]bool{}
		}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && !v.Field(i).IsZero() {
				in[v.Type()][fieldtest.Name(f)] = true
				filled(v.Field(i), in)
			}
		}
	}
}
