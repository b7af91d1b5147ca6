package podvolumes

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/podtest"
)

// BenchmarkContainer measures the preparation of a pod for the start of another container, including the mount of the pod's volume.
func BenchmarkContainer(b *testing.B) {
	a := &fakeAPI{maps: map[string]map[string]string{"cm": {"a": "1", "b": "2"}}, secrets: map[string]map[string]string{"s": {"p": "hush"}}, token: "ey"}
	v, err := New(Config{Root: b.TempDir(), Hostname: func(p *v1.Pod) (string, string) { return p.Name, "" }, Objects: a, Fields: a})
	if err != nil {
		b.Fatal(err)
	}
	p := podtest.New("web", podtest.Namespace("ns"), podtest.Label("app", "x"), podtest.Volumes(projection(everything...)))
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if err := v.Prepare(ctx, p); err != nil {
			b.Fatal(err)
		}
		if err := v.Container(ctx, p, &p.Spec.Containers[0], &api.ContainerConfig{Metadata: &api.ContainerMetadata{}}); err != nil {
			b.Fatal(err)
		}
	}
	if err := v.Release(ctx, p.UID); err != nil {
		b.Fatal(err)
	}
}
