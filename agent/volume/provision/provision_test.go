package provision_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/volume/provision"
	"github.com/islet-edge/islet/edge/local"
	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/podtest"
)

func node(t *testing.T) (*provision.Claims, *local.Objects) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	s, err := store.Open(context.Background(), filepath.Join(t.TempDir(), "islet.db"), log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	l, err := local.Open(context.Background(), local.Config{Store: s, Changed: func(types.UID) {}, Log: log}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return provision.New(provision.Config{Dir: filepath.Join(t.TempDir(), "claims"), Node: "edge", Local: l, Log: log}), l
}

func claimed(t *testing.T, l *local.Objects, name, size string) {
	t.Helper()
	set, err := manifest.Decode(fmt.Appendf(nil, "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: %s}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: %s}}}", name, size), manifest.Options{Source: "local"})
	if err == nil {
		_, err = l.Apply(t.Context(), set.Objects, false)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func podOf(source, claim string) *v1.Pod {
	p := podtest.New("p", podtest.Source(source), podtest.Claims(claim))
	p.Spec.Volumes[0].Name = "v"
	return p
}

// TestClaim checks that a claim in a manifest is bound to a directory. The directory stays after the deletion of the pod and the claim, and
// is removed when nothing uses it any more.
func TestClaim(t *testing.T) {
	c, l := node(t)
	pod := podOf("local", "data")
	l.Register(pod)
	if err := c.Prepare(t.Context(), pod); err != nil || len(c.List()) != 0 {
		t.Fatal("an unknown claim:", err, c.List())
	}
	if _, err := c.Claim(pod, "data"); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	claimed(t, l, "data", "1Gi")
	for range 2 {
		if err := c.Prepare(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.Claim(pod, "data")
	if err != nil || got.Status.Phase != v1.ClaimBound {
		t.Fatal(got, err)
	}
	pv, err := c.PersistentVolume(pod, got.Spec.VolumeName)
	if err != nil || pv.Spec.ClaimRef.UID != got.UID || pv.Spec.Local.Path != c.Path("default", "data") ||
		pv.Spec.Capacity.Storage().Value() != 1<<30 {
		t.Fatal(pv, err)
	}
	fi, err := os.Stat(pv.Spec.Local.Path)
	if err != nil || fi.Mode().Perm() != 0o777 {
		t.Error(fi, err)
	}
	if fi, err := os.Stat(filepath.Dir(pv.Spec.Local.Path)); err != nil || fi.Mode().Perm() != 0o700 {
		t.Error("other users can read the data:", fi, err)
	}
	kept := filepath.Join(pv.Spec.Local.Path, "kept")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove("default", "data"); !errors.Is(err, provision.ErrInUse) {
		t.Error("removed the directory of a claim in a manifest:", err)
	}
	if _, err := l.Delete(t.Context(), "PersistentVolumeClaim", "default", "data"); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove("default", "data"); !errors.Is(err, provision.ErrInUse) {
		t.Error("removed the directory of a pod's claim:", err)
	}
	if err := l.Release(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	if all := c.List(); len(all) != 1 || all[0].Claimed {
		t.Error(all)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error("the data went with the pod:", err)
	}
	if err := c.Remove("default", "data"); err != nil || len(c.List()) != 0 {
		t.Error(err, c.List())
	}
}

// TestOthersHaveNone checks that pods of the API server, of files and of URLs cannot use a local claim.
func TestOthersHaveNone(t *testing.T) {
	c, l := node(t)
	claimed(t, l, "data", "1Gi")
	for _, source := range []string{"api", "file", "http"} {
		pod := podOf(source, "data")
		l.Register(pod)
		if err := c.Prepare(t.Context(), pod); err != nil || len(c.List()) != 0 {
			t.Error(source, err, c.List())
		}
		if _, err := c.Claim(pod, "data"); !apierrors.IsNotFound(err) {
			t.Error(source, err)
		}
		if _, err := c.PersistentVolume(pod, "pvc-x"); !apierrors.IsNotFound(err) {
			t.Error(source, err)
		}
	}
}
