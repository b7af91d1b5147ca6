package images_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	crapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/podtest"
	"github.com/islet-edge/islet/runtime/cri"
)

// A tagged is an image store with one image that has several names.
type tagged struct {
	cri.Images
	names  []string
	pinned bool
	gone   bool
}

func (s *tagged) ImageStatus(_ context.Context, q *crapi.ImageStatusRequest) (*crapi.ImageStatusResponse, error) {
	if err := podspec.CheckImage(q.Image.Image); err != nil {
		return nil, err
	}
	for _, name := range append([]string{"sha256:1"}, s.names...) {
		if !s.gone && (q.Image.Image == name || "docker.io/library/"+q.Image.Image == name) {
			return &crapi.ImageStatusResponse{Image: &crapi.Image{Id: "sha256:1", RepoTags: slices.Clone(s.names),
				Pinned: s.pinned, Size: 7}}, nil
		}
	}
	return &crapi.ImageStatusResponse{}, nil
}

func (s *tagged) Untag(_ context.Context, name string) error {
	s.names = slices.DeleteFunc(s.names, func(n string) bool { return n == "docker.io/library/"+name })
	return nil
}

func (s *tagged) RemoveImage(context.Context, *crapi.RemoveImageRequest) (*crapi.RemoveImageResponse, error) {
	if s.pinned {
		return nil, errors.New("it is pinned")
	}
	s.names, s.gone = nil, true
	return &crapi.RemoveImageResponse{}, nil
}

// TestRemoveImage checks that the other names of an image stay when one name is removed. The image is deleted with its last name, or when
// it is removed by ID. If a pod needs the image, the removal fails unless it is forced.
func TestRemoveImage(t *testing.T) {
	const a, b = "docker.io/library/a:1", "docker.io/library/b:1"
	for name, c := range map[string]struct {
		names []string
		pod   string // the image of a pod
		query string
		code  int
		left  []string
		says  string
	}{
		"one of two":          {[]string{a, b}, "", "ref=a:1", http.StatusOK, []string{b}, `"a:1"`},
		"the last":            {[]string{a}, "", "ref=a:1", http.StatusOK, nil, ""},
		"by its ID":           {[]string{a, b}, "", "ref=sha256:1", http.StatusOK, nil, ""},
		"unknown":             {[]string{a}, "", "ref=c:1", http.StatusNotFound, []string{a}, "not found"},
		"a needed name":       {[]string{a, b}, "a:1", "ref=a:1", http.StatusConflict, []string{a, b}, "needed by pod default/web"},
		"a needed name, full": {[]string{a, b}, a, "ref=a:1", http.StatusConflict, []string{a, b}, "needed by pod default/web"},
		"another name of it":  {[]string{a, b}, "b:1", "ref=a:1", http.StatusOK, []string{b}, ""},
		"a needed image":      {[]string{a, b}, "b:1", "ref=sha256:1", http.StatusConflict, []string{a, b}, "--force"},
		"an invalid one":      {[]string{a}, "Not an image", "ref=a:1", http.StatusOK, nil, ""},
		"forced":              {[]string{a}, "a:1", "ref=a:1&force", http.StatusOK, nil, ""},
	} {
		images := &tagged{names: c.names}
		n, _ := servertest.Start(t, func(cfg *server.Config) { images.Images, cfg.Images = cfg.Images, images })
		if c.pod != "" {
			p := n.Pod("web", time.Now(), "main").DeepCopy()
			p.Spec.Containers[0].Image = c.pod
			n.Put(p)
		}
		code, body := n.Do(t, http.MethodDelete, api.PathImages+"?"+c.query, "")
		if code != c.code || !slices.Equal(images.names, c.left) || images.gone != (c.left == nil) ||
			!strings.Contains(strings.ReplaceAll(body, "docker.io/library/", ""), c.says) {
			t.Errorf("%s: %d %s; left is %v", name, code, body, images.names)
		}
	}
}

// TestRemovePinned checks that no message about a pinned image suggests --force, which does not remove it.
func TestRemovePinned(t *testing.T) {
	const a = "docker.io/library/a:1"
	for _, c := range []struct {
		pod, query, says string
	}{
		{a, "ref=a:1", "needed by pod default/web and pinned: it belongs to the bundle"}, {a, "ref=sha256:1", "bundles without this image"},
		{"", "ref=a:1", "it is pinned"}, {a, "ref=a:1&force", "it is pinned"},
	} {
		images := &tagged{names: []string{a}, pinned: true}
		n, _ := servertest.Start(t, func(cfg *server.Config) { images.Images, cfg.Images = cfg.Images, images })
		if c.pod != "" {
			n.Put(podtest.New("web", podtest.UID("uid-web"), podtest.Image(c.pod)))
		}
		code, body := n.Do(t, http.MethodDelete, api.PathImages+"?"+c.query, "")
		if code == http.StatusOK || images.gone || !strings.Contains(body, c.says) || strings.Contains(body, "with --force") {
			t.Errorf("%s: %d %s", c.query, code, body)
		}
	}
}
