package rebuild

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podtest"
)

// TestAsMade checks that a pod that is recovered from its containers has the image of the newest container.
func TestAsMade(t *testing.T) {
	made := func(uid types.UID, name, image string, attempt uint32) *api.Container {
		return &api.Container{Labels: map[string]string{keys.PodUID: string(uid)}, Metadata: &api.ContainerMetadata{Name: name, Attempt: attempt},
			Image: &api.ImageSpec{Image: "sha256:1", UserSpecifiedImage: image}}
	}
	pod := podtest.New("a")
	pod.Spec.InitContainers = []v1.Container{{Name: "i", Image: "init:1"}}
	pod.Spec.Containers = []v1.Container{{Name: "c", Image: "app:1"}, {Name: "d", Image: "app:1"}, {Name: "e", Image: "app:1"}}
	restoreImages(pod, []*api.Container{
		made("a", "i", "init:2", 0), made("a", "c", "app:3", 2), made("a", "c", "app:1", 0), made("a", "c", "app:2", 1),
		made("b", "d", "other:1", 9), made("a", "e", "", 1), {},
	})
	for _, c := range []struct{ got, want string }{
		{pod.Spec.InitContainers[0].Image, "init:2"}, {pod.Spec.Containers[0].Image, "app:3"}, {pod.Spec.Containers[1].Image, "app:1"}, {pod.Spec.Containers[2].Image, "app:1"},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
}
