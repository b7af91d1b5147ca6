package provision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/local"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/runtime/mounts"
)

// dirMode opens a claim's directory to whichever user a container runs as, like an
// emptyDir; parentMode keeps others from coming there.
const (
	dirMode    = 0o777
	parentMode = 0o700
)

// API has the claims of the API server's pods. *object.Cache is one.
type API interface {
	Claim(pod *v1.Pod, name string) (*v1.PersistentVolumeClaim, error)
	PersistentVolume(pod *v1.Pod, name string) (*v1.PersistentVolume, error)
	VolumeSecret(pod *v1.Pod, namespace, name string) (*v1.Secret, error)
	Renew(ctx context.Context, pod *v1.Pod) error
}

// Local has the claims of manifests. *local.Objects is one.
type Local interface {
	Claim(pod *v1.Pod, name string) (*v1.PersistentVolumeClaim, error)
	List() []local.Info
	Used(kind, namespace, name string) bool
}

// Quota bounds directories. Nil where there is none.
type Quota interface {
	// Limit bounds what is below a directory, in bytes; enforced: the file system does so.
	Limit(dir string, bytes int64) (enforced bool, err error)
	// Usage is how many bytes are below a directory whose limit is enforced.
	Usage(dir string) (bytes int64, known bool)
	// Forget gives back what Limit took. The directory is there still.
	Forget(dir string) error
}

// Config is what New needs.
type Config struct {
	Dir   string // of all claims
	Node  string // the node's name
	Local Local
	API   API   // nil: the node stands alone
	Quota Quota // nil: there is none
	Log   *slog.Logger
}

// Claims is a hook; it comes before the volumes.
type Claims struct {
	c      Config
	making sync.Mutex // directories are made and removed one at a time
}

// New makes nothing.
func New(c Config) *Claims { return &Claims{c: c} }

// Name is the hook's.
func (*Claims) Name() string { return "claims" }

// Path is where a claim's directory is.
func (c *Claims) Path(namespace, name string) string {
	return filepath.Join(c.c.Dir, namespace, name)
}

// Prepare makes the directories of a pod's claims, and bounds them. A claim that no
// manifest has is the volume's to tell.
func (c *Claims) Prepare(_ context.Context, pod *v1.Pod) error {
	if !local.Serves(pod) {
		return nil
	}
	for i := range pod.Spec.Volumes {
		v := pod.Spec.Volumes[i].PersistentVolumeClaim
		if v == nil {
			continue
		}
		claim, err := c.c.Local.Claim(pod, v.ClaimName)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		if err := c.make(claim); err != nil {
			return fmt.Errorf("make the directory of claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
	}
	return nil
}

func (c *Claims) make(claim *v1.PersistentVolumeClaim) error {
	c.making.Lock()
	defer c.making.Unlock()
	dir := c.Path(claim.Namespace, claim.Name)
	if err := os.MkdirAll(filepath.Dir(dir), parentMode); err != nil {
		return err
	}
	if fi, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		unfinished := dir + unfinishedSuffix
		if err := os.Mkdir(unfinished, parentMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := os.Chmod(unfinished, dirMode); err != nil {
			return err
		}
		if err := os.Rename(unfinished, dir); err != nil {
			return err
		}
	} else if err != nil {
		return err
	} else if !fi.IsDir() {
		return fmt.Errorf("%s is no directory", dir)
	}
	if c.c.Quota == nil {
		return nil
	}
	if _, err := c.c.Quota.Limit(dir, sizeOf(claim)); err != nil { // as on a disk that has none
		c.c.Log.Warn("a claim is not kept to its size", "claim", claim.Namespace+"/"+claim.Name, "error", err)
	}
	return nil
}

// unfinishedSuffix is in no name of an object.
const unfinishedSuffix = "~new"

func sizeOf(claim *v1.PersistentVolumeClaim) int64 {
	q := claim.Spec.Resources.Requests[v1.ResourceStorage]
	return q.Value()
}

// Claim gives a claim that a pod names, bound.
func (c *Claims) Claim(pod *v1.Pod, name string) (*v1.PersistentVolumeClaim, error) {
	if !local.Serves(pod) {
		if c.c.API == nil {
			return nil, notFound("persistentvolumeclaim", name)
		}
		return c.c.API.Claim(pod, name)
	}
	claim, err := c.c.Local.Claim(pod, name)
	if err != nil {
		return nil, err
	}
	claim = claim.DeepCopy()
	claim.Spec.VolumeName = volumeName(claim)
	claim.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, AccessModes: claim.Spec.AccessModes, Capacity: v1.ResourceList{v1.ResourceStorage: claim.Spec.Resources.Requests[v1.ResourceStorage]}}
	return claim, nil
}

// volumeName is the name of the volume that a claim of a manifest is bound to, as a
// provisioner would name it.
func volumeName(claim *v1.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

// PersistentVolume gives the volume that a claim of the pod is bound to: a local one.
// https://kubernetes.io/docs/concepts/storage/volumes/#local
func (c *Claims) PersistentVolume(pod *v1.Pod, name string) (*v1.PersistentVolume, error) {
	if !local.Serves(pod) {
		if c.c.API == nil {
			return nil, notFound("persistentvolume", name)
		}
		return c.c.API.PersistentVolume(pod, name)
	}
	for i := range pod.Spec.Volumes {
		v := pod.Spec.Volumes[i].PersistentVolumeClaim
		if v == nil {
			continue
		}
		if claim, err := c.Claim(pod, v.ClaimName); err == nil && claim.Spec.VolumeName == name {
			return c.volumeOf(claim), nil
		}
	}
	return nil, notFound("persistentvolume", name)
}

func (c *Claims) volumeOf(claim *v1.PersistentVolumeClaim) *v1.PersistentVolume {
	mode := v1.PersistentVolumeFilesystem
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName, UID: types.UID("pv-" + claim.UID)},
		Spec: v1.PersistentVolumeSpec{
			Capacity:                      v1.ResourceList{v1.ResourceStorage: *resource.NewQuantity(sizeOf(claim), resource.BinarySI)},
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    &mode,
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: c.Path(claim.Namespace, claim.Name)}},
			ClaimRef:                      &v1.ObjectReference{APIVersion: "v1", Kind: podspec.Claim, Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{c.c.Node}}},
			}}}},
		},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound},
	}
}

// VolumeSecret gives a Secret that a volume of the pod names. Those of manifests name none.
func (c *Claims) VolumeSecret(pod *v1.Pod, namespace, name string) (*v1.Secret, error) {
	if c.c.API == nil || local.Serves(pod) {
		return nil, notFound("secret", name)
	}
	return c.c.API.VolumeSecret(pod, namespace, name)
}

// Renew has all that the pod's volumes name read again. What manifests say is known.
func (c *Claims) Renew(ctx context.Context, pod *v1.Pod) error {
	if c.c.API == nil || local.Serves(pod) {
		return ctx.Err()
	}
	return c.c.API.Renew(ctx, pod)
}

func notFound(kind, name string) error { return apierrors.NewNotFound(v1.Resource(kind), name) }

// A Dir is the directory of a claim.
type Dir struct {
	Namespace, Name string
	Path            string
	Used            int64 // bytes; -1: unknown
	Enforced        bool  // the file system keeps it to the claim's size
	Claimed         bool  // by a manifest
}

// Exists reports whether a claim has its directory.
func (c *Claims) Exists(namespace, name string) bool {
	fi, err := os.Lstat(c.Path(namespace, name))
	return err == nil && fi.IsDir()
}

// List gives the directories there are.
func (c *Claims) List() (all []Dir) {
	claimed := map[[2]string]bool{}
	for _, o := range c.c.Local.List() {
		if o.Kind == podspec.Claim && !o.Gone {
			claimed[[2]string{o.Namespace, o.Name}] = true
		}
	}
	found, err := filepath.Glob(filepath.Join(c.c.Dir, "*", "*"))
	if err != nil {
		return nil // the pattern is wrong
	}
	for _, path := range found {
		d := Dir{Namespace: filepath.Base(filepath.Dir(path)), Name: filepath.Base(path), Path: path, Used: -1}
		if strings.HasSuffix(path, unfinishedSuffix) {
			continue
		}
		if c.c.Quota != nil {
			if n, known := c.c.Quota.Usage(path); known {
				d.Used, d.Enforced = n, true
			}
		}
		d.Claimed = claimed[[2]string{d.Namespace, d.Name}]
		all = append(all, d)
	}
	return all
}

// ErrInUse refuses to remove what a pod uses or a manifest claims.
var ErrInUse = errors.New("it is in use")

// Remove removes the directory of a claim and all that is in it, for ever. It refuses
// while a manifest has the claim or a pod names it.
func (c *Claims) Remove(namespace, name string) error {
	c.making.Lock()
	defer c.making.Unlock()
	for _, o := range c.c.Local.List() {
		if o.Kind == podspec.Claim && !o.Gone && o.Namespace == namespace && o.Name == name {
			return fmt.Errorf("%w: %s is in %s, remove it there first", ErrInUse, o.Key, from(o))
		}
	}
	if c.c.Local.Used(podspec.Claim, namespace, name) {
		return fmt.Errorf("%w: a pod has the claim %s/%s, delete that first", ErrInUse, namespace, name)
	}
	dir := c.Path(namespace, name)
	if _, err := os.Lstat(dir); err != nil {
		return err
	}
	if c.c.Quota != nil {
		if err := c.c.Quota.Forget(dir); err != nil {
			c.c.Log.Warn("the quota of a claim that is removed could not be given back", "path", dir, "error", err)
		}
	}
	if err := mounts.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the data of claim %s/%s: %w", namespace, name, err)
	}
	_ = os.Remove(filepath.Dir(dir)) // of the namespace, if it was the last one
	return nil
}

func from(o local.Info) string {
	if o.Origin == "" {
		return "source " + o.Source
	}
	return o.Origin
}
