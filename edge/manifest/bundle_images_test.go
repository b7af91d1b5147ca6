package manifest

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/keys"
)

// TestBundleImages checks that the pods of a bundle get their images by digest, and that a pod gets another UID exactly if its manifest or
// one of its images has changed.
func TestBundleImages(t *testing.T) {
	const web = "docker.io/library/web@sha256:"
	one, two := web+strings.Repeat("1", 64), web+strings.Repeat("2", 64)
	text := `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: a, image: web, imagePullPolicy: Always}]
  initContainers: [{name: b, image: "web:latest"}]
  volumes: [{name: v, image: {reference: web, pullPolicy: Always}}]
`
	decode := func(origin string, images map[string]string) (*v1.Pod, error) {
		set, err := Decode([]byte(text), Options{Origin: origin, Source: keys.SourceBundle, NodeName: "edge", Images: images})
		if err != nil {
			return nil, err
		}
		return set.Pods[0], nil
	}
	p, err := decode("a", map[string]string{"docker.io/library/web:latest": one})
	if err != nil {
		t.Fatal(err)
	}
	if c := p.Spec.Containers[0]; p.Name != "web" || c.Image != one || c.ImagePullPolicy != v1.PullIfNotPresent {
		t.Errorf("%s %s %s", p.Name, c.Image, c.ImagePullPolicy)
	}
	if v := p.Spec.Volumes[0].Image; p.Spec.InitContainers[0].Image != one || v.Reference != one || v.PullPolicy != v1.PullIfNotPresent {
		t.Errorf("%+v %+v", p.Spec.InitContainers[0], v)
	}
	same, err := decode("b", map[string]string{"docker.io/library/web:latest": one, "docker.io/library/x:1": two})
	if err != nil || same.UID != p.UID {
		t.Errorf("another UID without a change: %v", err)
	}
	other, err := decode("a", map[string]string{"docker.io/library/web:latest": two})
	if err != nil || other.UID == p.UID {
		t.Errorf("the same UID with another image: %v", err)
	}
	if _, err := decode("a", nil); err == nil || !strings.Contains(err.Error(), `no image "web`) {
		t.Error(err)
	}
}
