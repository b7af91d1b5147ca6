package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/islet-edge/islet/agent/pod/hook"
	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/spec/translate"
	"github.com/islet-edge/islet/agent/pod/status"
)

// An absent is a cluster without the objects that pods request. It has only one ConfigMap, which contains no keys.
type absent struct{ translate.NoObjects }

func (absent) ConfigMap(_ *v1.Pod, name string) (*v1.ConfigMap, error) {
	if name == "there" {
		return &v1.ConfigMap{}, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("configmap"), name)
}

func (absent) Secret(_ *v1.Pod, name string) (*v1.Secret, error) {
	return nil, apierrors.NewNotFound(v1.Resource("secret"), name)
}

// A refusingHook is a hook that fails to prepare a pod.
type refusingHook struct{ error }

func (refusingHook) Name() string                             { return "refusing" }
func (r refusingHook) Prepare(context.Context, *v1.Pod) error { return r.error }

// TestPhrasesOfWaiting checks that the reasons and messages of waiting containers and of their events are those of kubelet 1.37. Tools
// match these texts. In each case, the container c of pod a waits.
func TestPhrasesOfWaiting(t *testing.T) {
	from := func(s *v1.EnvVarSource) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "X", ValueFrom: s}} }
	}
	ref := func(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }
	fails := func(call, message string) func(*node) {
		return func(n *node) {
			n.Fail = func(c, _ string) error {
				if c == call {
					return errors.New(message)
				}
				return nil
			}
		}
	}
	notFound := `exec: "nope": executable file not found in $PATH`
	for name, x := range map[string]struct {
		pod             func(*v1.Pod)
		node            func(*node)
		after           time.Duration
		reason, message string
		events          []string // these events follow the events of a present image
	}{
		"missing ConfigMap": {
			pod:    from(&v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: ref("x"), Key: "k"}}),
			reason: "CreateContainerConfigError", message: `configmap "x" not found`,
			events: []string{`c Warning Failed a: Error: configmap "x" not found`},
		},
		"missing key": {
			pod:    from(&v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: ref("there"), Key: "k"}}),
			reason: "CreateContainerConfigError", message: "couldn't find key k in ConfigMap default/there",
			events: []string{"c Warning Failed a: Error: couldn't find key k in ConfigMap default/there"},
		},
		"missing Secret": {
			pod:    from(&v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: ref("x"), Key: "k"}}),
			reason: "CreateContainerConfigError", message: `secret "x" not found`,
			events: []string{`c Warning Failed a: Error: secret "x" not found`},
		},
		"invalid image": {
			pod:    func(p *v1.Pod) { p.Spec.Containers[0].Image = "UPPER" },
			reason: "InvalidImageName",
			message: `Failed to apply default image tag "UPPER": couldn't parse image name "UPPER": ` +
				"invalid reference format: repository name (library/UPPER) must be lowercase",
			events: []string{"c Warning Failed a: Error: InvalidImageName", `c Warning InspectFailed a: Failed to apply default image tag ` +
				`"UPPER": couldn't parse image name "UPPER": invalid reference format: repository name (library/UPPER) must be lowercase`},
		},
		"never pulled": {
			pod: func(p *v1.Pod) {
				p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = "none:1", v1.PullNever
			},
			reason: "ErrImageNeverPull", message: `Container image "none:1" is not present with pull policy of Never`,
			events: []string{`c Warning ErrImageNeverPull a: Container image "none:1" is not present with pull policy of Never`,
				"c Warning Failed a: Error: ErrImageNeverPull"},
		},
		"failed pull": {
			pod:    func(p *v1.Pod) { p.Spec.Containers[0].Image = "none:1" },
			reason: "ErrImagePull", message: `failed to pull and unpack image "none:1": 404`,
			events: []string{`c Normal Pulling a: Pulling image "none:1"`, "c Warning Failed a: Error: ErrImagePull",
				`c Warning Failed a: Failed to pull image "none:1": failed to pull and unpack image "none:1": 404`},
		},
		"back-off of a pull": {
			pod:    func(p *v1.Pod) { p.Spec.Containers[0].Image = "none:1" },
			after:  plan.PullSettle + time.Second,
			reason: "ImagePullBackOff", message: `Back-off pulling image "none:1": ErrImagePull: failed to pull and unpack image "none:1": 404`,
			events: []string{`c Normal BackOff a: Back-off pulling image "none:1"`, "c Warning Failed a: Error: ImagePullBackOff"},
		},
		"container that cannot be created": {
			node:   fails("CreateContainer", "failed to generate container spec: no such device"),
			reason: "CreateContainerError", message: "failed to generate container spec: no such device",
			events: []string{"c Warning Failed a: Error: failed to generate container spec: no such device"},
		},
		"missing command": {
			node:   fails("StartContainer", "failed to create containerd task: "+notFound),
			reason: "RunContainerError", message: "failed to create containerd task: " + notFound,
			events: []string{"c Warning Failed a: Error: failed to create containerd task: " + notFound},
		},
		"sandbox that cannot be created": {
			node:   fails("RunPodSandbox", "no address is left"),
			reason: "ContainerCreating", message: "FailedCreatePodSandBox: no address is left",
			events: []string{"Warning FailedCreatePodSandBox a: Failed to create pod sandbox: no address is left"},
		},
		"volume": {
			node: func(n *node) {
				n.hooks = hook.Chain{refusingHook{errors.New(`MountVolume.SetUp failed for volume "v" : no`)}}
			},
			reason: "ContainerCreating", message: `FailedMount: MountVolume.SetUp failed for volume "v" : no`,
			events: []string{`Warning FailedMount a: MountVolume.SetUp failed for volume "v" : no`},
		},
		"crash loop": {
			node:   func(n *node) { n.life = time.Second },
			after:  5 * time.Second,
			reason: "CrashLoopBackOff", message: "back-off 10s restarting failed container=c pod=a_default(a)",
			events: []string{"c Warning BackOff a: Back-off restarting failed container c in pod a_default(a)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine("app:1")
			m.pull = func(context.Context, string) error { return errors.New("404") }
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, m)
				n.objects = absent{}
				if x.node != nil {
					x.node(n)
				}
				n.start(t)
				defer n.stop()
				p := pod("a", v1.PullIfNotPresent)
				if x.pod != nil {
					x.pod(p)
				}
				n.setWish("a", Wanted{Pod: p})
				waiting := func() *v1.ContainerStateWaiting {
					synctest.Wait()
					st := status.Compute(n.set.Input("a"), v1.PodStatus{}, status.Host{})
					return st.ContainerStatuses[0].State.Waiting
				}
				time.Sleep(x.after)
				w := waiting()
				// The back-off between the first pulls is random. The status does not show a short back-off, because it ends earlier.
				for end := time.Now().Add(2 * time.Minute); (w == nil || w.Reason != x.reason) && time.Now().Before(end); w = waiting() {
					time.Sleep(100 * time.Millisecond) // in the bubble's time
				}
				if w == nil || w.Reason != x.reason || w.Message != x.message {
					t.Errorf("waiting\n%+v\nwant\n%s: %s", w, x.reason, x.message)
				}
				for _, line := range x.events {
					if n.events.times(line) == 0 {
						t.Errorf("the event is missing: %s\nthere are %v", line, n.events.count)
					}
				}
			})
		})
	}
}
