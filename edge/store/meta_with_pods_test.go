package store

import (
	"context"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// TestRide checks that a value of AddMetaValue is stored together with the next change of a pod. The value alone causes no write.
func TestRide(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "islet.db"))
	ctx, now := context.Background(), "1"
	s.AddMetaValue("rider", func() string { return now })
	want := func(value string, found bool) {
		t.Helper()
		if v, ok, err := s.Meta(ctx, "rider"); v != value || ok != found || err != nil {
			t.Errorf("%q, %v, %v; want %q, %v", v, ok, err, value, found)
		}
	}
	if err := s.UpdatePods(ctx, nil, nil); err != nil {
		t.Fatal(err)
	}
	want("", false)
	p := pod("a", "a")
	if err := s.UpdatePods(ctx, []Pod{p}, nil); err != nil {
		t.Fatal(err)
	}
	want("1", true)
	now = "2"
	if err := s.UpdatePods(ctx, nil, nil); err != nil {
		t.Fatal(err)
	}
	want("1", true)
	if err := s.UpdatePods(ctx, nil, []types.UID{p.Pod.UID}); err != nil {
		t.Fatal(err)
	}
	want("2", true)
}
