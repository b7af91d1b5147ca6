package podvolumes

import (
	"context"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// image is a volume with the content of an image, read-only. The runtime mounts it. The image is pulled before the
// container is created.
// https://kubernetes.io/docs/concepts/storage/volumes/#image
type image struct{}

func (image) Plugin() string             { return "kubernetes.io/image" }
func (image) Serves(vol *v1.Volume) bool { return vol.Image != nil }

// SetUp does nothing.
func (image) SetUp(context.Context, *v1.Pod, *v1.Volume, string) (string, error) { return "", nil }

// mount returns the mount for the container. The runtime looks up the image by its name.
func (image) mount(m *v1.VolumeMount, vol *v1.Volume) *api.Mount {
	return &api.Mount{
		ContainerPath: filepath.Join("/", m.MountPath), Readonly: true,
		Image: &api.ImageSpec{Image: vol.Image.Reference, UserSpecifiedImage: vol.Image.Reference}, ImageSubPath: m.SubPath,
	}
}
