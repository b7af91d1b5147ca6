package object

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/keys"
)

// TestStaticPodsReadNothing checks that a static pod references no ConfigMap, Secret or PersistentVolumeClaim of the API server, because
// these objects come from manifests.
func TestStaticPodsReadNothing(t *testing.T) {
	pod := podOf("p", "settings")
	pod.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "pull"}}
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "c",
		VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}})
	count := func() (n int) {
		for k := range referencesOf(pod).objects {
			if k.Kind != serviceKind {
				n++
			}
		}
		return n
	}
	if n := count(); n != 3 {
		t.Errorf("a pod of the API server references %d", n)
	}
	for _, source := range []string{keys.SourceFile, keys.SourceHTTP, keys.SourceLocal} {
		pod.Annotations = map[string]string{keys.ConfigSource: source}
		if n := count(); n != 0 {
			t.Errorf("%s: the pod references %d objects of the API", source, n)
		}
	}
}
