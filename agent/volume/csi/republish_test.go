package csi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/islet-edge/islet/agent/volume/storage"
)

// TestFailedRepublish checks that a failed republish changes nothing for the pod. The mount, its files and vol_data.json stay, and the next
// round publishes the volume. This also applies to a mount by another process.
func TestFailedRepublish(t *testing.T) {
	yes := true
	answer := func(err error) func(*world) {
		return func(w *world) { w.fails("publish", func(context.Context) error { return err }) }
	}
	set := func(to *error, w *world) {
		w.mu.Lock()
		defer w.mu.Unlock()
		*to = errors.New("not today")
	}
	for name, fault := range map[string]func(*world){
		"internal error":    answer(status.Error(codes.Internal, "not today")),
		"invalid argument":  answer(status.Error(codes.InvalidArgument, "not like this")),
		"not found":         answer(status.Error(codes.NotFound, "no such volume")),
		"permission denied": answer(status.Error(codes.PermissionDenied, "the token has expired")),
		"timeout":           answer(status.Error(codes.DeadlineExceeded, "still busy")),
		"no Secret":         func(w *world) { set(&w.noSecret, w) },
		"no token":          func(w *world) { set(&w.noToken, w) },
		"no driver":         func(w *world) { w.Deregister(w.plugin()) },
		"no longer for volumes": func(w *world) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.object = w.object.DeepCopy()
			w.object.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}
		},
	} {
		for _, adopted := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t)
				w.register()
				w.object.Spec.RequiresRepublish, w.object.Spec.TokenRequests = &yes, []storagev1.TokenRequest{{Audience: "a"}}
				v := volume()
				v.Source.CSI.NodePublishSecretRef = &v1.SecretReference{Namespace: "ns", Name: "publish"}
				u := w.use(v, podNamed("a"))
				requireNoError(t, w.mount(v, u))
				requireNoError(t, os.WriteFile(filepath.Join(u.Path, "file"), []byte("x"), 0o600))
				before := w.object
				if adopted {
					after, err := New(w.cfg)
					requireNoError(t, err)
					w.Drivers = after
					w.register()
					w.Adopt(v, w.StagePath(v), u)
				}
				fault(w)
				w.republishNow(t)
				w.checkKept(v, u)

				w.fails("publish", nil)
				w.mu.Lock()
				w.noSecret, w.noToken, w.object = nil, nil, before
				w.gotPublish = nil
				w.mu.Unlock()
				w.register()
				w.republishNow(t)
				w.checkKept(v, u)
				if w.gotPublish == nil || w.gotPublish.VolumeContext[tokensKey] == "" || w.gotPublish.Secrets["key"] != "ns/publish" {
					t.Errorf("then published with %v", w.gotPublish)
				}
				w.undo(v, u)
			})
		}
	}
}

// republishNow republishes one volume in a round, and waits for the end of the round.
func (w *world) republishNow(t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	if !w.republishAll(t.Context(), &all) {
		t.Error("no volume is republished")
	}
	all.Wait()
}

// checkKept checks that the pod still has its volume, the file that the pod has written, and the record for the unmount.
func (w *world) checkKept(v storage.Volume, u storage.Use) {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(u.Path, "file"))
	if err != nil || string(text) != "x" || !mounted(u.Path) || !mounted(w.StagePath(v)) {
		w.Errorf("the pod's file: %q, %v; mounted: %v, staged: %v", text, err, mounted(u.Path), mounted(w.StagePath(v)))
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(u.Path), dataFile)); err != nil {
		w.Error(err)
	}
}
