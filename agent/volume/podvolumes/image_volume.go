package podvolumes

import (
	"context"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imageVolume is a read-only volume with the content of an image. The runtime mounts it. The image is pulled before the
// container is created.
// https://kubernetes.io/docs/concepts/storage/volumes/#image
type imageVolume struct{}

func (imageVolume) Plugin() string             { return "kubernetes.io/image" }
func (imageVolume) Serves(vol *v1.Volume) bool { return vol.Image != nil }

// SetUp does nothing.
func (imageVolume) SetUp(context.Context, *v1.Pod, *v1.Volume, string) (string, error) {
	return "", nil
}

// containerMount returns the mount for the container. The runtime looks up the image by its name.
func (imageVolume) containerMount(m *v1.VolumeMount, vol *v1.Volume) *api.Mount {
	return &api.Mount{
		ContainerPath: filepath.Join("/", m.MountPath), Readonly: true,
		Image: &api.ImageSpec{Image: vol.Image.Reference, UserSpecifiedImage: vol.Image.Reference}, ImageSubPath: m.SubPath,
	}
}
