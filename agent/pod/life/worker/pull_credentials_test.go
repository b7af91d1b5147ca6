package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/keyring"
)

// A plugins returns the credentials of Secrets and plugins. A pod's service account is the part of the pod's name before "-".
type plugins struct {
	users
	mu    sync.Mutex
	asked int
	fails error
	gives []string
}

func (p *plugins) Keyring(ctx context.Context, pod *v1.Pod, image string) keyring.Credentials {
	k := p.users.Keyring(ctx, pod, image)
	k.Scope, _, _ = strings.Cut(pod.Name, "-")
	from := v1.ObjectReference{Kind: keyring.ServiceAccount, Namespace: pod.Namespace, Name: k.Scope, UID: types.UID("uid-" + k.Scope)}
	k.Account = func(context.Context) (v1.ObjectReference, error) { return from, nil }
	k.RunPlugins = func(context.Context) (all []keyring.Credential, err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asked++
		for _, user := range p.gives {
			all = append(all, keyring.Credential{Auth: &api.AuthConfig{Username: user, Password: fmt.Sprint("rotated ", p.asked)}, From: from})
		}
		return all, p.fails
	}
	return k
}

// TestPullWithPlugins checks that a plugin is called only if a pull needs it. The credentials of Secrets are tried first. No plugin is
// called for a pod that may use the present image, or if the registry is unreachable.
func TestPullWithPlugins(t *testing.T) {
	m, path := newMachine("pre:1"), filepath.Join(t.TempDir(), "islet.db")
	var mu sync.Mutex
	var tried []string
	down := false
	m.login = func(a *api.AuthConfig) error {
		mu.Lock()
		defer mu.Unlock()
		tried = append(tried, a.GetUsername())
		switch {
		case down:
			return &net.OpError{Op: "dial", Err: errors.New("no route to host")}
		case !strings.HasPrefix(a.GetUsername(), "right"):
			return errors.New("403 Forbidden for " + a.GetUsername())
		}
		return nil
	}
	p := &plugins{users: users{"has-1": {"old", "right secret"}, "acme-1": {"old"}}, gives: []string{"stale", "right plugin"}}
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, m)
		n.keyring = p
		records := (interface{ Close() error })(nil)
		n.guard, records = newVerifier(t, path, m)
		n.start(t)
		defer func() { n.stop(); records.Close() }()
		var runs []string
		try := func(name string, policy v1.PullPolicy, image string, starts bool, wantTried string, wantAsked int) {
			t.Helper()
			mu.Lock()
			tried = nil
			mu.Unlock()
			before := p.asked
			w := pod(name, policy)
			w.Spec.Containers[0].Image = image
			n.setWish(types.UID(name), Wanted{Pod: w})
			time.Sleep(time.Second)
			synctest.Wait()
			if starts {
				runs = append(runs, name+"/c#0")
			}
			slices.Sort(runs)
			checkRunning(t, n, runs...)
			got, again := strings.Join(tried, ","), !starts // a failed pull may have been retried
			if asked := p.asked - before; !again && (got != wantTried || asked != wantAsked) || again &&
				(!strings.HasPrefix(got, wantTried) || asked < wantAsked) {
				t.Errorf("%s tried %s, %d plugin calls", name, got, p.asked-before)
			}
		}
		try("has-1", v1.PullIfNotPresent, "one:1", true, "old,right secret", 0)
		try("acme-1", v1.PullIfNotPresent, "app:1", true, "old,stale,right plugin", 1)
		try("acme-2", v1.PullIfNotPresent, "app:1", true, "", 0) // the same service account
		try("acme-3", v1.PullAlways, "app:1", true, ",stale,right plugin", 1)
		try("bcme-1", v1.PullNever, "app:1", false, "", 0) // the pod has another service account
		n.setWish("bcme-1", Wanted{Pod: pod("bcme-1", v1.PullNever), Deleting: true})
		try("bcme-2", v1.PullIfNotPresent, "app:1", true, ",stale,right plugin", 1)

		p.gives, p.fails = nil, errors.New("credential provider acme: it did not answer within 1m0s")
		try("acme-4", v1.PullIfNotPresent, "new:1", false, "", 1)
		if f := n.failure("acme-4"); f.Reason != plan.ErrImagePull || !strings.Contains(f.Message, "did not answer within") ||
			!strings.Contains(f.Message, "403 Forbidden") {
			t.Errorf("failure %+v", f)
		}
		n.setWish("acme-4", Wanted{Pod: pod("acme-4", v1.PullIfNotPresent), Deleting: true})

		down = true
		try("acme-5", v1.PullAlways, "app:1", true, "", 0)
		try("pre-1", v1.PullAlways, "pre:1", true, "", 0)
		try("ccme-1", v1.PullAlways, "app:1", false, "", 0) // this account has not pulled the image
	})
}

// TestPluginBackoff checks that a failed pull waits for its back-off, although the plugin returns a new credential for each call. The pods
// of one service account share the back-off.
func TestPluginBackoff(t *testing.T) {
	m := newMachine()
	m.login = func(*api.AuthConfig) error { return errors.New("403 Forbidden") }
	p := &plugins{gives: []string{"wrong"}}
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, m)
		n.keyring = p
		n.start(t)
		defer n.stop()
		for i := range 10 {
			name := fmt.Sprint("acme-", i)
			n.setWish(types.UID(name), Wanted{Pod: pod(name, v1.PullAlways)})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if p.asked < 2 || p.asked > 12 {
			t.Error(p.asked, "calls in a minute")
		}
	})
}
