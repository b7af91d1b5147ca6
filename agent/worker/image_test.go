package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/hook"
	"github.com/islet-edge/islet/agent/plan"
)

// A deletion during a long pull takes effect at once.
func TestDeleteCancelsPull(t *testing.T) {
	m := newMachine()
	m.pull = func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
	bubble(t, m, func(t *testing.T, n *node) {
		n.want("a", Wanted{Pod: pod("a", "")})
		n.want("a", Wanted{Pod: pod("a", ""), Deleting: true})
		if n.left(t) > 0 {
			t.Error("something is left")
		}
	})
}

// Twenty pods share one pull (the machine panics at a second one) and one
// back-off; another image is not held up.
func TestSharedPull(t *testing.T) {
	m := newMachine("other:1")
	m.pull = func(context.Context, string) error {
		time.Sleep(time.Minute)
		return errors.New("404")
	}
	bubble(t, m, func(t *testing.T, n *node) {
		for i := range 20 {
			n.want(types.UID(fmt.Sprint("p", i)), Wanted{Pod: pod(fmt.Sprint("p", i), "")})
		}
		other := pod("other", "")
		other.Spec.Containers[0].Image = "other:1"
		n.want("other", Wanted{Pod: other})
		expect(t, n, "other/c#0")
		time.Sleep(61 * time.Second)
		f := n.failure("p7")
		if f.Reason != plan.ErrImagePull || time.Until(f.Retry) != 9*time.Second {
			t.Errorf("failure %+v", f)
		}
		m.mu.Lock()
		m.pull = nil
		m.mu.Unlock()
		m.bring(t, "app:1") // somebody imports it
		n.actor.ImagesChanged()
		n.set.Retry()
		synctest.Wait()
		if got := len(n.list(true)); got != 21 {
			t.Errorf("%d pods run", got)
		}
	})
}

type importing chan struct{}

func (i importing) WaitImage(ctx context.Context, _ string) error {
	select {
	case <-i:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A pod that may not pull waits for an import that goes on.
func TestPullNever(t *testing.T) {
	m := newMachine()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, m)
		imports := make(importing)
		n.imports = imports
		n.start(t)
		defer n.stop()
		n.want("a", Wanted{Pod: pod("a", v1.PullNever)})
		m.bring(t, "app:1")
		close(imports)
		expect(t, n, "a/c#0")
		missing := pod("b", v1.PullNever)
		missing.Spec.Containers[0].Image = "missing:1"
		n.want("b", Wanted{Pod: missing})
		if f := n.failure("b"); f.Reason != plan.ErrImageNeverPull {
			t.Errorf("failure %+v", f)
		}
		wrong := pod("c", "")
		wrong.Spec.Containers[0].Image = "Not An Image"
		n.want("c", Wanted{Pod: wrong})
		if f := n.failure("c"); f.Reason != plan.InvalidImageName {
			t.Errorf("failure %+v", f)
		}
	})
}

// A node that cannot reach the registry runs the image that it has; an answer of
// the registry counts.
func TestPullAlways(t *testing.T) {
	m := newMachine("app:1")
	err := error(&net.OpError{Op: "dial", Err: errors.New("no route to host")})
	m.pull = func(context.Context, string) error { return err }
	bubble(t, m, func(t *testing.T, n *node) {
		n.want("a", Wanted{Pod: pod("a", v1.PullAlways)})
		expect(t, n, "a/c#0")
		time.Sleep(time.Minute)
		err = errors.New("403 Forbidden")
		n.want("b", Wanted{Pod: pod("b", v1.PullAlways)})
		expect(t, n, "a/c#0")
		if f := n.failure("b"); f.Reason != plan.ErrImagePull {
			t.Errorf("failure %+v", f)
		}
	})
}

// keys has credentials by pod.
type keys map[types.UID][]string

func (k keys) Keyring(_ context.Context, pod *v1.Pod, _ string) (all []*api.AuthConfig) {
	for _, user := range k[pod.UID] {
		all = append(all, &api.AuthConfig{Username: user})
	}
	return all
}

// Each credential is tried, and then none. One pod's do not help another, nor do its
// failures hold up one that has the right ones.
func TestPullWithCredentials(t *testing.T) {
	m := newMachine()
	var tried []string
	m.login = func(a *api.AuthConfig) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if tried = append(tried, a.GetUsername()); a.GetUsername() != "right" {
			return errors.New("403 Forbidden for " + a.GetUsername())
		}
		return nil
	}
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, m)
		n.keyring = keys{"b": {"old", "right", "unused"}}
		n.start(t)
		defer n.stop()
		n.want("a", Wanted{Pod: pod("a", v1.PullAlways)})
		expect(t, n)
		if f := n.failure("a"); f.Reason != plan.ErrImagePull {
			t.Errorf("failure %+v", f)
		}
		n.want("b", Wanted{Pod: pod("b", v1.PullAlways)})
		expect(t, n, "b/c#0")
		if got := fmt.Sprintf("%q", tried); got != `["" "old" "right"]` {
			t.Error(got)
		}
	})
}

// A registry that cannot be reached is not asked again with other credentials.
func TestUnreachableWithCredentials(t *testing.T) {
	m := newMachine("app:1")
	tries := 0
	m.login = func(*api.AuthConfig) error {
		tries++
		return &net.OpError{Op: "dial", Err: errors.New("no route to host")}
	}
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, m)
		n.keyring = keys{"a": {"one", "two"}}
		n.start(t)
		defer n.stop()
		n.want("a", Wanted{Pod: pod("a", v1.PullAlways)})
		expect(t, n, "a/c#0")
		if tries != 1 {
			t.Error(tries)
		}
	})
}

// missing is a hook that fails as long as an object is missing.
type missing struct{ there atomic.Bool }

func (*missing) Name() string { return "missing" }

func (m *missing) Prepare(context.Context, *v1.Pod) error {
	if m.there.Load() {
		return nil
	}
	return errors.New("configmap not found")
}

// A pod that waits for an object starts when it comes, whatever its back-off.
func TestRetryPod(t *testing.T) {
	m := newMachine("app:1")
	synctest.Test(t, func(t *testing.T) {
		n, object := newNode(t, m), &missing{}
		n.hooks = hook.Chain{object}
		n.start(t)
		defer n.stop()
		n.want("a", Wanted{Pod: pod("a", v1.PullIfNotPresent)})
		time.Sleep(time.Hour)
		f := n.set.Input("a").Failed[plan.Key{Op: plan.RunSandbox}]
		if f.Reason != plan.FailedMount || f.N < 50 {
			t.Errorf("failure %+v", f)
		}
		time.Sleep(time.Until(f.Retry) + time.Second)
		object.there.Store(true)
		n.set.RetryPod("a")
		expect(t, n, "a/c#0")
		n.set.RetryPod("nobody")
	})
}
