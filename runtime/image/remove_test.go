package image

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestUntag checks that Untag removes a single name of an image. When the last name is removed, the image is removed too.
func TestUntag(t *testing.T) {
	s := newService(t, nil)
	img := small(t)
	for _, name := range []string{"demo:1", "demo:2"} {
		data := ociArchive(t, func(p layout.Path) error { return p.AppendImage(img, named1(name)) })
		if _, err := s.ImportArchive(t.Context(), bytes.NewReader(data), name, nil); err != nil {
			t.Fatal(err)
		}
	}
	exists := func(name string) bool {
		t.Helper()
		st, err := s.ImageStatus(t.Context(), &api.ImageStatusRequest{Image: &api.ImageSpec{Image: name}})
		if err != nil {
			t.Fatal(err)
		}
		return st.Image != nil
	}
	if st, err := s.ImageStatus(t.Context(), &api.ImageStatusRequest{Image: &api.ImageSpec{Image: "demo:1"}}); err != nil {
		t.Fatal(err)
	} else if added, err := s.ImagesAdded(t.Context()); err != nil || len(added) != 1 || time.Since(added[st.Image.Id]) > time.Hour {
		t.Errorf("added: %v, %v", added, err)
	}
	for _, step := range []struct {
		name     string
		one, two bool
	}{{"demo:1", false, true}, {"demo:2", false, false}} {
		if err := s.Untag(t.Context(), step.name); err != nil {
			t.Fatal(err)
		}
		if exists("demo:1") != step.one || exists("demo:2") != step.two {
			t.Errorf("after %s: %v, %v", step.name, exists("demo:1"), exists("demo:2"))
		}
	}
	if got := left(t, s); len(got) > 0 {
		t.Errorf("left over: %q", got)
	}
	if err := s.Untag(t.Context(), "demo:1"); err == nil {
		t.Error("a name that does not exist was untagged")
	}
}
