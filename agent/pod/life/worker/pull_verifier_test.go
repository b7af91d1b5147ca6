package worker

import (
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/agent/engine/pulls"
	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/runtime/cri"
)

// newVerifier returns a Verifier for the images. It stores its records at path.
func newVerifier(t *testing.T, path string, images cri.Images) (*pulls.Verifier, *store.Store) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s, err := store.Open(t.Context(), path, log)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := pulls.NewPolicy(kubelet.NeverVerifyPreloadedImages, nil)
	if err != nil {
		t.Fatal(err)
	}
	g := pulls.New(pulls.Config{Policy: policy, Store: s, Images: images, Log: log})
	if err := g.Reconcile(t.Context()); err != nil {
		t.Error(err)
	}
	return g, s
}

// TestPrivateImages checks that a private image on the node is available only to pods with valid credentials. This applies to each pull
// policy, with and without the registry, and after a reboot.
func TestPrivateImages(t *testing.T) {
	m, path := newMachine("pre:1"), filepath.Join(t.TempDir(), "islet.db")
	var asked, down atomic.Int64
	m.login = func(a *api.AuthConfig) error {
		switch asked.Add(1); {
		case down.Load() > 0:
			return &net.OpError{Op: "dial", Err: errors.New("no route to host")}
		case a.GetUsername() != "ann":
			return errors.New("403 Forbidden")
		}
		return nil
	}
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, m)
		n.keyring = users{"ann": {"ann"}, "ann2": {"ann"}, "ann3": {"old", "ann"}, "ann4": {"ann"}, "bob": {"bob"}, "bob2": {"bob"}, "bob3": {"bob"}, "pre": {"bob"}}
		var records *store.Store
		n.guard, records = newVerifier(t, path, m)
		n.start(t)
		defer func() { n.stop(); records.Close() }()
		try := func(uid string, policy v1.PullPolicy, image string) {
			t.Helper()
			p := pod(uid, policy)
			p.Spec.Containers[0].Image = image
			n.setWish(types.UID(uid), Wanted{Pod: p})
			time.Sleep(time.Second)
			synctest.Wait()
		}
		refused := func(uid types.UID, reason, words string) {
			t.Helper()
			if f := n.failure(uid); f.Reason != reason || !strings.Contains(f.Message, words) {
				t.Errorf("%s: %+v", uid, f)
			}
		}
		try("ann", v1.PullIfNotPresent, "app:1")
		checkRunning(t, n, "ann/c#0")
		before := asked.Load()
		try("ann2", v1.PullIfNotPresent, "app:1")
		try("ann3", v1.PullNever, "app:1")
		checkRunning(t, n, "ann/c#0", "ann2/c#0", "ann3/c#0")
		if asked.Load() != before {
			t.Error("the registry was called")
		}
		try("bob", v1.PullIfNotPresent, "app:1")
		refused("bob", plan.ErrImagePull, "403 Forbidden")
		try("none", v1.PullNever, "app:1")
		refused("none", plan.ErrImageNeverPull, `Container image "app:1" is not present with pull policy of Never`)

		down.Store(1)
		n.stop()
		if err := records.Close(); err != nil {
			t.Error(err)
		}
		n.guard, records = newVerifier(t, path, m)
		n.start(t)
		try("ann4", v1.PullAlways, "app:1")
		try("bob2", v1.PullAlways, "app:1")
		refused("bob2", plan.ErrImagePull, "no route to host")
		try("bob3", v1.PullIfNotPresent, "app:1")
		refused("bob3", plan.ErrImagePull, "no route to host")
		try("pre", v1.PullAlways, "pre:1")
		time.Sleep(time.Hour)
		checkRunning(t, n, "ann/c#0", "ann2/c#0", "ann3/c#0", "ann4/c#0", "pre/c#0")
	})
}
