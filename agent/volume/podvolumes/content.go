package podvolumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/islet-edge/islet/internal/podspec"
)

// Objects returns the API objects from which the files of volumes are written. Its methods do not block, because all
// objects that a pod needs are fetched before its volumes are set up. If an object does not exist,
// apierrors.IsNotFound is true for the error.
type Objects interface {
	ConfigMap(pod *v1.Pod, name string) (*v1.ConfigMap, error)
	Secret(pod *v1.Pod, name string) (*v1.Secret, error)
	Token(pod *v1.Pod, p *v1.ServiceAccountTokenProjection) (string, error)
	// TrustAnchors returns the certificates of ClusterTrustBundles, as PEM.
	TrustAnchors(pod *v1.Pod, p *v1.ClusterTrustBundleProjection) ([]byte, error)
	// Credentials returns the key and the certificate chain of a podCertificate source, as PEM.
	Credentials(pod *v1.Pod, volume string, source int) (key, chain []byte, err error)
	// Deleted reports whether the API server has deleted a ConfigMap or Secret. The pod can still use the last copy of
	// a deleted object.
	Deleted(pod *v1.Pod, kind, name string) bool
}

// Fields returns the pod's own fields and resources for the downward API.
type Fields interface {
	Field(pod *v1.Pod, path string) (string, error)
	Resource(pod *v1.Pod, sel *v1.ResourceFieldSelector) (string, error)
}

// content implements the kinds of volumes whose files the node writes and updates atomically. Containers always mount
// such a volume read-only, as in a kubelet.
type content struct {
	plugin       string
	servesVolume func(*v1.Volume) bool
	memory       *tmpfsMounter // mounts a tmpfs for the volume, so that its data is never written to a disk; nil for a volume on disk
	listFiles    func(*v1.Pod, *v1.Volume) (files, error)

	writeLock sync.Mutex // guards the volumes' files, because containers of a pod may start concurrently
}

func (c *content) Plugin() string             { return c.plugin }
func (c *content) Serves(vol *v1.Volume) bool { return c.servesVolume(vol) }
func (c *content) ReadOnly() bool             { return true }

// SetUp creates the volume. If the files' content cannot be determined, existing files stay unchanged, so that a
// container of a running pod can still restart.
func (c *content) SetUp(ctx context.Context, pod *v1.Pod, vol *v1.Volume, dir string) (string, error) {
	c.writeLock.Lock()
	defer c.writeLock.Unlock()
	f, err := c.listFiles(pod, vol)
	if err != nil && hasFiles(dir) {
		return dir, nil
	}
	if err != nil {
		return "", err
	}
	medium := v1.StorageMediumDefault
	if c.memory != nil {
		medium = v1.StorageMediumMemory
	}
	empty := &v1.Volume{Name: vol.Name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: medium}}}
	if _, err := (emptyDir{memory: c.memory}).SetUp(ctx, pod, empty, dir); err != nil {
		return "", err
	}
	if err := f.write(dir, fsGroupOrNone(pod)); err != nil {
		return "", err
	}
	return dir, makeMountPoints(pod, vol, dir)
}

// Refresh updates the files of a volume that is already set up.
func (c *content) Refresh(pod *v1.Pod, vol *v1.Volume, dir string) error {
	c.writeLock.Lock()
	defer c.writeLock.Unlock()
	if !hasFiles(dir) {
		return nil
	}
	f, err := c.listFiles(pod, vol)
	if err != nil {
		return err
	}
	return f.write(dir, fsGroupOrNone(pod))
}

func fsGroupOrNone(pod *v1.Pod) int {
	if gid, ok := fsGroup(pod); ok {
		return gid
	}
	return -1
}

// makeMountPoints creates the directories in this volume on which containers mount other volumes. The runtime cannot
// create them in a read-only volume.
func makeMountPoints(pod *v1.Pod, vol *v1.Volume, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, c := range podspec.Containers(&pod.Spec) {
		for _, sub := range nestedMountPaths(c, vol.Name) {
			if _, err := root.Stat(sub); !errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err := root.MkdirAll(sub, 0o755); err != nil {
				return fmt.Errorf("make the mount point %s in the volume: %w", sub, err)
			}
		}
	}
	return nil
}

// nestedMountPaths returns the paths in a volume on which the container mounts another volume.
func nestedMountPaths(ctr *v1.Container, volume string) (subs []string) {
	for _, outer := range ctr.VolumeMounts {
		if outer.Name != volume || outer.SubPath != "" || outer.SubPathExpr != "" {
			continue
		}
		for _, inner := range ctr.VolumeMounts {
			sub, err := filepath.Rel(filepath.Clean(outer.MountPath), filepath.Clean(inner.MountPath))
			if err != nil {
				continue
			}
			if sub, err = cleanName(sub); err == nil { // otherwise the inner path is not below the outer one
				subs = append(subs, sub)
			}
		}
	}
	return subs
}

// noObjects implements Objects on a node without an API server.
type noObjects struct{}

var errNoServer = errors.New("this node has no API server")

func (noObjects) ConfigMap(_ *v1.Pod, name string) (*v1.ConfigMap, error) {
	return nil, fmt.Errorf("%w: %w", apierrors.NewNotFound(v1.Resource("configmap"), name), errNoServer)
}

func (noObjects) Secret(_ *v1.Pod, name string) (*v1.Secret, error) {
	return nil, fmt.Errorf("%w: %w", apierrors.NewNotFound(v1.Resource("secret"), name), errNoServer)
}

func (noObjects) Deleted(*v1.Pod, string, string) bool { return false }

func (noObjects) Token(*v1.Pod, *v1.ServiceAccountTokenProjection) (string, error) {
	return "", fmt.Errorf("service account token: %w", errNoServer)
}

func (noObjects) TrustAnchors(*v1.Pod, *v1.ClusterTrustBundleProjection) ([]byte, error) {
	return nil, errNoServer
}

func (noObjects) Credentials(*v1.Pod, string, int) (key, chain []byte, err error) {
	return nil, nil, fmt.Errorf("podCertificate: %w", errNoServer)
}
