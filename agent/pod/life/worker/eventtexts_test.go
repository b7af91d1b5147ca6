package worker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/hook"
	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/spec/translate"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/internal/keyring"
)

// TestEventsOfStartupProbes checks that the event about a failed startup probe names the probe. A sidecar is checked too.
func TestEventsOfStartupProbes(t *testing.T) {
	m := newMachine("app:1")
	bubble(t, m, func(t *testing.T, n *node) {
		n.stop()
		n.health = func(pod *v1.Pod, seen plan.Observed) map[string]plan.Health {
			out := map[string]plan.Health{}
			for _, c := range seen.Containers {
				ill := map[string]string{"a": "c", "b": "s"}[pod.Name]
				gone := c.Attempt == 0 && c.Name == ill
				out[c.ID] = plan.Health{Started: !gone, Ready: !gone, Unhealthy: gone}
			}
			return out
		}
		n.start(t)
		p := otherPod(v1.RestartPolicyAlways, "app:1")
		n.setWish("a", Wanted{Pod: p})
		time.Sleep(time.Minute)
		if n.events.times("c Normal Killing a: Container c failed startup probe, will be restarted") != 1 {
			t.Error(n.events.count)
		}
		p = otherPod(v1.RestartPolicyAlways, "app:1")
		p.Name, p.UID = "b", "b"
		p.Spec.InitContainers = []v1.Container{{Name: "s", Image: "app:1", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}}
		n.setWish("b", Wanted{Pod: p})
		time.Sleep(time.Minute)
		if n.events.times("s Normal Killing b: Init container s failed startup probe") != 1 {
			t.Error(n.events.count)
		}
	})
}

// TestEventsOfDNS checks that events report the DNS settings that a new sandbox does not get. A node without a cluster has no event about
// the cluster's DNS.
func TestEventsOfDNS(t *testing.T) {
	m := newMachine("app:1")
	bubble(t, m, func(t *testing.T, n *node) {
		p := pod("a", v1.PullNever)
		p.Spec.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{"1", "2", "3", "4"}, Searches: make([]string, 0, 40)}
		for i := range 40 {
			p.Spec.DNSConfig.Searches = append(p.Spec.DNSConfig.Searches, string(rune('a'+i)))
		}
		n.setWish("a", Wanted{Pod: p})
		checkRunning(t, n, "a/c#0")
		if len(n.events.lines["a"]) != 5 {
			t.Error(n.events.lines["a"])
		}
		e := n.actor
		e.cfg.Standalone = true
		e.warnOfDNS(pod("b", v1.PullNever), translate.Node{})
		e.cfg.Standalone = false
		e.warnOfDNS(pod("c", v1.PullNever), translate.Node{})
		if len(n.events.lines["b"]) != 0 || len(n.events.lines["c"]) != 1 {
			t.Error(n.events.lines)
		}
	})
}

// unreadableImages is an image service that returns an error from ImageStatus.
type unreadableImages struct{ *machine }

func (unreadableImages) ImageStatus(context.Context, *api.ImageStatusRequest) (*api.ImageStatusResponse, error) {
	return nil, errors.New("database is closed")
}

// deniedImages is an image service that denies all pulls.
type deniedImages struct{ *machine }

func (deniedImages) PullImage(context.Context, *api.PullImageRequest) (*api.PullImageResponse, error) {
	return nil, errors.New("denied: authentication required")
}

// An emptyKeyring is a keyring that lacks the Secrets of the pod.
type emptyKeyring struct{}

func (emptyKeyring) Keyring(context.Context, *v1.Pod, string) keyring.Credentials {
	return keyring.Credentials{MissingSecrets: []string{"one", "two"}}
}

func TestEventsOfImages(t *testing.T) {
	m := newMachine("app:1")
	var told eventRecorder
	images := newImages(ExecutorConfig{Images: unreadableImages{m}, Verifier: allowAll{}, Events: eventtest.Sink(told.record)})
	p := pod("a", v1.PullIfNotPresent)
	if _, _, err := images.ensureImage(t.Context(), p, &p.Spec.Containers[0]); err == nil {
		t.Error("an image that cannot be inspected")
	}
	images = newImages(ExecutorConfig{Images: m, Keyring: emptyKeyring{}, Verifier: allowAll{}, Events: eventtest.Sink(told.record)})
	p.Spec.Containers[0].ImagePullPolicy = v1.PullAlways
	if _, _, err := images.ensureImage(t.Context(), p, &p.Spec.Containers[0]); err != nil {
		t.Error(err)
	}
	const missing = "Warning FailedToRetrieveImagePullSecret a: Unable to retrieve some image pull secrets (one, two); attempting to pull the image may not succeed."
	if told.times(missing) != 0 {
		t.Error("a pull that succeeded warns of pull secrets")
	}
	images = newImages(ExecutorConfig{Images: deniedImages{m}, Keyring: emptyKeyring{}, Verifier: allowAll{}, Events: eventtest.Sink(told.record)})
	if _, _, err := images.ensureImage(t.Context(), p, &p.Spec.Containers[0]); err == nil {
		t.Error("an image whose pull is denied")
	}
	for _, want := range []string{
		`c Warning InspectFailed a: Failed to inspect image "app:1": database is closed`,
		missing,
	} {
		if told.times(want) != 1 {
			t.Error(told.count)
		}
	}
}

// An unmappedHook is a hook that cannot prepare a block volume.
type unmappedHook struct{}

func (unmappedHook) Name() string { return "unmapped" }
func (unmappedHook) Prepare(context.Context, *v1.Pod) error {
	return fmt.Errorf("volumes: %w", unmappedHook{})
}
func (unmappedHook) Error() string       { return "no device" }
func (unmappedHook) EventReason() string { return "FailedMapVolume" }

// TestEventOfBlockVolume checks that the event about a failed block volume has its own reason. The event about a failed file system volume
// has another one.
func TestEventOfBlockVolume(t *testing.T) {
	m := newMachine("app:1")
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, m)
		n.hooks = hook.Chain{unmappedHook{}}
		n.start(t)
		defer n.stop()
		n.setWish("a", Wanted{Pod: pod("a", v1.PullIfNotPresent)})
		n.events.checkEvents(t, "a", "Warning FailedMapVolume a: volumes: no device")
	})
}
