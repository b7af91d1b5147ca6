package podspec_test

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

func TestImages(t *testing.T) {
	spec := &v1.PodSpec{
		InitContainers:      []v1.Container{{Image: "init"}},
		Containers:          []v1.Container{{Image: "main"}, {}, {Image: "Not an image"}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Image: "debug"}}},
		Volumes: []v1.Volume{{}, {VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "data"}}},
			{VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{}}},
			{VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "https://not.a/reference"}}}},
	}
	got := podspec.Images(spec)
	slices.Sort(got)
	if want := []string{"data", "debug", "init", "main"}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

func TestFullImage(t *testing.T) {
	sum := "sha256:" + strings.Repeat("ab", 32)
	for ref, want := range map[string]string{
		"busybox":                      "docker.io/library/busybox:latest",
		"localhost/web:1":              "localhost/web:1",
		"r.example:5000/a/b":           "r.example:5000/a/b:latest",
		"r.example/a@" + sum:           "r.example/a@" + sum,
		"r.example/a:v1@" + sum:        "r.example/a@" + sum,
		sum:                            sum,
		"NOT A REFERENCE":              "NOT A REFERENCE",
		"":                             "",
		strings.Repeat("ab", 32) + "x": "docker.io/library/" + strings.Repeat("ab", 32) + "x:latest",
	} {
		if got := podspec.FullImage(ref); got != want {
			t.Errorf("FullImage(%q) = %q, not %q", ref, got, want)
		}
	}
}
