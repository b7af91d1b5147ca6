package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/islet-edge/islet/agent/pod/hook"
	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/internal/keyring"
)

// TestDeleteCancelsPull checks that the deletion of a pod cancels the pod's image pull.
func TestDeleteCancelsPull(t *testing.T) {
	m := newMachine()
	m.pull = func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
	bubble(t, m, func(t *testing.T, n *node) {
		n.setWish("a", Wanted{Pod: pod("a", "")})
		n.setWish("a", Wanted{Pod: pod("a", ""), Deleting: true})
		if n.countLeft(t) > 0 {
			t.Error("containers are left")
		}
	})
}

// TestSharedPull checks that twenty pods with the same image share one pull and one back-off. They do not delay another image. The machine
// panics if an image is pulled twice at the same time.
func TestSharedPull(t *testing.T) {
	m := newMachine("other:1")
	m.pull = func(context.Context, string) error {
		time.Sleep(time.Minute) // in the bubble's time
		return errors.New("404")
	}
	bubble(t, m, func(t *testing.T, n *node) {
		for i := range 20 {
			n.setWish(types.UID(fmt.Sprint("p", i)), Wanted{Pod: pod(fmt.Sprint("p", i), "")})
		}
		other := pod("other", "")
		other.Spec.Containers[0].Image = "other:1"
		n.setWish("other", Wanted{Pod: other})
		checkRunning(t, n, "other/c#0")
		time.Sleep(time.Minute)
		synctest.Wait()
		f := n.failure("p7")
		if wait := time.Until(f.Retry); f.Reason != plan.ErrImagePull || wait <= 0 || wait > plan.PullFirst {
			t.Errorf("failure %+v", f)
		}
		m.mu.Lock()
		m.pull = nil
		m.mu.Unlock()
		m.bring(t, "app:1") // an import adds the image
		n.actor.ImagesChanged()
		n.set.Retry()
		synctest.Wait()
		if got := len(n.list(true)); got != 21 {
			t.Errorf("%d pods run", got)
		}
	})
}

// TestPullBackoff checks that a failed pull is retried after a random time within a window. The window doubles as a kubelet's back-off
// does. The time is never shorter than the registry requests.
func TestPullBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, w := newImages(ExecutorConfig{}), pullKey{image: "app:1"}
		next := func(err error) time.Duration {
			p, ok := errors.AsType[*Problem](m.recordFailure(w, err))
			if !ok || p.Reason != plan.ErrImagePull {
				t.Fatal(p)
			}
			return time.Until(p.Retry)
		}
		var waits []time.Duration
		for _, most := range []int{10, 20, 40, 80, 160, 300, 300} {
			wait := next(errors.New("404"))
			if wait <= 0 || wait > time.Duration(most)*time.Second {
				t.Errorf("waits for %s within %d s", wait, most)
			}
			waits = append(waits, wait)
			time.Sleep(wait)
		}
		for i, most := range []time.Duration{10, 20, 40} {
			if waits[i] == most*time.Second {
				t.Errorf("no jitter: %v", waits)
			}
		}
		if wait := next(fmt.Errorf("pull: %w", busyError(10*time.Minute))); wait < 10*time.Minute || wait > 15*time.Minute {
			t.Errorf("waits for %s although the registry requests 10 min", wait)
		}
	})
}

// busyError is a registry's error that requests a wait before the next pull.
type busyError time.Duration

func (busyError) Error() string               { return "429" }
func (b busyError) RetryAfter() time.Duration { return time.Duration(b) }

type importing chan struct{}

func (i importing) WaitImage(ctx context.Context, _ string) error {
	select {
	case <-i:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestPullNever checks that a pod with the policy Never waits for an image import in progress.
func TestPullNever(t *testing.T) {
	m := newMachine()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, m)
		imports := make(importing)
		n.imports = imports
		n.start(t)
		defer n.stop()
		n.setWish("a", Wanted{Pod: pod("a", v1.PullNever)})
		m.bring(t, "app:1")
		close(imports)
		checkRunning(t, n, "a/c#0")
		missing := pod("b", v1.PullNever)
		missing.Spec.Containers[0].Image = "missing:1"
		n.setWish("b", Wanted{Pod: missing})
		if f := n.failure("b"); f.Reason != plan.ErrImageNeverPull {
			t.Errorf("failure %+v", f)
		}
		wrong := pod("c", "")
		wrong.Spec.Containers[0].Image = "Not An Image"
		n.setWish("c", Wanted{Pod: wrong})
		if f := n.failure("c"); f.Reason != plan.InvalidImageName {
			t.Errorf("failure %+v", f)
		}
	})
}

// TestImageVolumes checks that a container starts only when its image and all images that it mounts are present.
func TestImageVolumes(t *testing.T) {
	m := newMachine("app:1")
	var pulled []string
	var there atomic.Bool
	m.pull = func(_ context.Context, image string) error {
		pulled = append(pulled, image)
		if there.Load() {
			return nil
		}
		return errors.New("404")
	}
	bubble(t, m, func(t *testing.T, n *node) {
		p := pod("a", v1.PullNever)
		for _, name := range []string{"data", "other"} { // no container mounts the volume "other"
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: name + ":1", PullPolicy: v1.PullIfNotPresent}}})
		}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
		n.setWish("a", Wanted{Pod: p})
		checkRunning(t, n)
		if f := n.failure("a"); f.Reason != plan.ErrImagePull || !strings.Contains(f.Message, `volume "data"`) {
			t.Errorf("failure %+v", f)
		}
		there.Store(true)
		time.Sleep(time.Minute)
		checkRunning(t, n, "a/c#0")
		if slices.Contains(pulled, "other:1") || !slices.Contains(pulled, "data:1") {
			t.Errorf("pulled %v", pulled)
		}

		never := pod("b", v1.PullNever)
		never.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "none:1", PullPolicy: v1.PullNever}}}}
		never.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
		n.setWish("b", Wanted{Pod: never})
		checkRunning(t, n, "a/c#0")
		if f := n.failure("b"); f.Reason != plan.ErrImageNeverPull {
			t.Errorf("failure %+v", f)
		}
	})
}

// TestPullAlways checks that a pod uses the present image if the registry is unreachable. If the registry rejects the pull, or if the
// image cannot be unpacked, the pod does not start.
func TestPullAlways(t *testing.T) {
	m := newMachine("app:1")
	var answer atomic.Pointer[error]
	fail := func(err error) { answer.Store(&err) }
	fail(&net.OpError{Op: "dial", Err: errors.New("no route to host")})
	m.pull = func(context.Context, string) error { return *answer.Load() }
	bubble(t, m, func(t *testing.T, n *node) {
		n.setWish("a", Wanted{Pod: pod("a", v1.PullAlways)})
		checkRunning(t, n, "a/c#0")
		for i, trouble := range []error{
			fmt.Errorf("%w: 429 Too Many Requests", crierrors.ErrRegistryUnavailable),
			errors.New("rpc error: code = Unknown desc = RegistryUnavailable: unexpected EOF"), // error of a runtime behind a socket
		} {
			time.Sleep(time.Minute)
			fail(trouble)
			uid := types.UID(fmt.Sprint("t", i))
			n.setWish(uid, Wanted{Pod: pod(string(uid), v1.PullAlways)})
			checkRunning(t, n, []string{"a/c#0", "t0/c#0", "t1/c#0"}[:i+2]...)
		}
		for uid, trouble := range map[types.UID]error{
			"b":    errors.New("403 Forbidden"),
			"disk": fmt.Errorf("unpack layer 1: %w", &os.LinkError{Op: "link", Old: "a", New: "b", Err: syscall.ENOENT}),
			"torn": fmt.Errorf("unpack layer 1: %w", io.ErrUnexpectedEOF),
		} {
			time.Sleep(time.Minute)
			fail(trouble)
			n.setWish(uid, Wanted{Pod: pod(string(uid), v1.PullAlways)})
			checkRunning(t, n, "a/c#0", "t0/c#0", "t1/c#0")
			if f := n.failure(uid); f.Reason != plan.ErrImagePull {
				t.Errorf("%s: failure %+v", uid, f)
			}
		}
	})
}

// A users returns the credentials from a pod's Secrets. The key is the pod's UID.
type users map[types.UID][]string

func (u users) Keyring(_ context.Context, pod *v1.Pod, _ string) (k keyring.Credentials) {
	for _, user := range u[pod.UID] {
		from := v1.ObjectReference{Kind: keyring.Secret, Namespace: pod.Namespace, Name: user, UID: types.UID("uid-" + user)}
		k.Stored = append(k.Stored, keyring.Credential{Auth: &api.AuthConfig{Username: user}, From: from})
	}
	return k
}

// TestPullWithCredentials checks that a pull tries each credential of its pod, and finally no credential. A pod does not use the
// credentials of another pod. Failures of one pod do not delay a pod with valid credentials.
func TestPullWithCredentials(t *testing.T) {
	m := newMachine()
	var tried []string
	m.login = func(a *api.AuthConfig) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		tried = append(tried, a.GetUsername())
		if a.GetUsername() != "right" {
			return errors.New("403 Forbidden for " + a.GetUsername())
		}
		return nil
	}
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, m)
		n.keyring = users{"b": {"old", "right", "unused"}}
		n.start(t)
		defer n.stop()
		n.setWish("a", Wanted{Pod: pod("a", v1.PullAlways)})
		checkRunning(t, n)
		if f := n.failure("a"); f.Reason != plan.ErrImagePull {
			t.Errorf("failure %+v", f)
		}
		n.setWish("b", Wanted{Pod: pod("b", v1.PullAlways)})
		checkRunning(t, n, "b/c#0")
		if got := fmt.Sprintf("%q", tried); got != `["" "old" "right"]` {
			t.Error(got)
		}
	})
}

// TestUnreachableWithCredentials checks that a pull does not try other credentials if the registry is unreachable.
func TestUnreachableWithCredentials(t *testing.T) {
	m := newMachine("app:1")
	tries := 0
	m.login = func(*api.AuthConfig) error {
		tries++
		return &net.OpError{Op: "dial", Err: errors.New("no route to host")}
	}
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, m)
		n.keyring = users{"a": {"one", "two"}}
		n.start(t)
		defer n.stop()
		n.setWish("a", Wanted{Pod: pod("a", v1.PullAlways)})
		checkRunning(t, n, "a/c#0")
		if tries != 1 {
			t.Error(tries)
		}
	})
}

// A missingObjectHook is a hook that fails until its object exists.
type missingObjectHook struct{ there atomic.Bool }

func (*missingObjectHook) Name() string { return "missing" }

func (m *missingObjectHook) Prepare(context.Context, *v1.Pod) error {
	if m.there.Load() {
		return nil
	}
	return errors.New("configmap not found")
}

// TestRetryPod checks that a pod that waits for an object starts as soon as the object appears. It does not wait for its back-off.
func TestRetryPod(t *testing.T) {
	m := newMachine("app:1")
	synctest.Test(t, func(t *testing.T) {
		n, object := newNode(t, m), &missingObjectHook{}
		n.hooks = hook.Chain{object}
		n.start(t)
		defer n.stop()
		n.setWish("a", Wanted{Pod: pod("a", v1.PullIfNotPresent)})
		time.Sleep(time.Hour)
		f := n.set.Input("a").Failed[plan.Key{Op: plan.RunSandbox}]
		if f.Reason != plan.FailedMount || f.N < 50 {
			t.Errorf("failure %+v", f)
		}
		time.Sleep(time.Until(f.Retry) + time.Second)
		object.there.Store(true)
		n.set.RetryPod("a")
		checkRunning(t, n, "a/c#0")
		n.set.RetryPod("nobody")
	})
}

// A deletingVerifier is a verifier that deletes the pod during the verification.
type deletingVerifier struct {
	allowAll
	leave context.CancelFunc
}

func (l deletingVerifier) MayUse(context.Context, string, string, func() keyring.Credentials) bool {
	l.leave()
	return false
}

// TestPodLeavesItsImage checks that no event reports a missing image after the pod was deleted during the verification.
func TestPodLeavesItsImage(t *testing.T) {
	m := newMachine()
	m.bring(t, "app:1")
	ctx, leave := context.WithCancel(t.Context())
	var events eventRecorder
	images := newImages(ExecutorConfig{Images: m, Verifier: deletingVerifier{leave: leave}, Events: eventtest.Sink(events.record), Log: slog.New(slog.DiscardHandler)})
	p := pod("a", v1.PullNever)
	if image, _, err := images.ensureImage(ctx, p, &p.Spec.Containers[0]); image != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v %v", image, err)
	}
	if len(events.count) > 0 {
		t.Errorf("events %v", events.count)
	}
}
