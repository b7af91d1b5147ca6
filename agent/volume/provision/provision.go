package provision

import (
	"cmp"
	"context"
	"crypto/rand"
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
	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/runtime/mounts"
)

// dirMode allows any user in a container to write to a claim's directory. An emptyDir allows this too. parentMode
// denies access to local users.
const (
	dirMode    = 0o777
	parentMode = 0o700
)

// API returns the claims and volumes of pods that come from the API server. *object.Cache implements it.
type API interface {
	Claim(pod *v1.Pod, name string) (*v1.PersistentVolumeClaim, error)
	PersistentVolume(pod *v1.Pod, name string) (*v1.PersistentVolume, error)
	VolumeSecret(pod *v1.Pod, namespace, name string) (*v1.Secret, error)
	Renew(ctx context.Context, pod *v1.Pod) error
}

// Local returns the claims from manifests. *local.Objects implements it.
type Local interface {
	Claim(pod *v1.Pod, name string) (*v1.PersistentVolumeClaim, error)
	List() []local.Info
	IsUsed(kind, namespace, name string) bool
}

// A Quota limits the size of directories. It is nil if the file system does not support quotas.
type Quota interface {
	// Limit sets the quota of a directory, in bytes. It returns true if the file system enforces the quota.
	Limit(dir string, bytes int64) (enforced bool, err error)
	// Usage returns the number of bytes below a directory. It returns false if the directory has no quota.
	Usage(dir string) (bytes int64, known bool)
	// RemoveLimit releases the quota of a directory, which must still exist.
	RemoveLimit(dir string) error
}

// Config configures New.
type Config struct {
	Dir   string // parent of all claims' directories
	Node  string // the node's name
	Local Local
	API   API   // nil if the node has no control plane
	Quota Quota // nil if there are no quotas
	Log   *slog.Logger
}

// Claims is a pod hook. It must run before the volumes' hook.
type Claims struct {
	c Config

	mu       sync.Mutex      // guards creating directories and moving them away; never held during the removal of data
	removals map[string]bool // paths of the removed directories whose data this process is deleting
}

// New returns the hook. It does no I/O.
func New(c Config) *Claims { return &Claims{c: c, removals: map[string]bool{}} }

// Name returns the name of the hook.
func (*Claims) Name() string { return "claims" }

// Path returns the directory of a claim.
func (c *Claims) Path(namespace, name string) string {
	return filepath.Join(c.c.Dir, namespace, name)
}

// Prepare creates the directories of the pod's claims and sets their quotas. It skips claims that no manifest
// contains. Mounting the volume of such a claim returns an error.
func (c *Claims) Prepare(_ context.Context, pod *v1.Pod) error {
	if !local.IsStatic(pod) {
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
		if err := c.makeDir(claim); err != nil {
			return fmt.Errorf("make the directory of claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
	}
	return nil
}

func (c *Claims) makeDir(claim *v1.PersistentVolumeClaim) error {
	c.mu.Lock()
	defer c.mu.Unlock()
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
		return fmt.Errorf("%s is not a directory", dir)
	}
	if c.c.Quota == nil {
		return nil
	}
	if _, err := c.c.Quota.Limit(dir, sizeOf(claim)); err != nil { // for example because the disk does not support quotas
		c.c.Log.Warn("cannot enforce the size of a claim", "claim", claim.Namespace+"/"+claim.Name, "error", err)
	}
	return nil
}

// unfinishedSuffix marks a directory that is not complete. removedPrefix marks a directory whose data is being deleted. An object's name
// cannot contain them.
const (
	unfinishedSuffix = "~new"
	removedPrefix    = "~removed-"
)

func sizeOf(claim *v1.PersistentVolumeClaim) int64 {
	q := claim.Spec.Resources.Requests[v1.ResourceStorage]
	return q.Value()
}

// Claim returns a claim that the pod uses. A claim from a manifest is always returned as bound.
func (c *Claims) Claim(pod *v1.Pod, name string) (*v1.PersistentVolumeClaim, error) {
	if !local.IsStatic(pod) {
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
	claim.Status = v1.PersistentVolumeClaimStatus{
		Phase: v1.ClaimBound, AccessModes: claim.Spec.AccessModes,
		Capacity: v1.ResourceList{v1.ResourceStorage: claim.Spec.Resources.Requests[v1.ResourceStorage]},
	}
	return claim, nil
}

// volumeName returns the name of the volume to which a claim from a manifest is bound. A provisioner in a cluster
// would use the same name.
func volumeName(claim *v1.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

// PersistentVolume returns the volume to which a claim of the pod is bound. For a claim from a manifest this is a
// local volume.
// https://kubernetes.io/docs/concepts/storage/volumes/#local
func (c *Claims) PersistentVolume(pod *v1.Pod, name string) (*v1.PersistentVolume, error) {
	if !local.IsStatic(pod) {
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
			PersistentVolumeSource: v1.PersistentVolumeSource{
				Local: &v1.LocalVolumeSource{Path: c.Path(claim.Namespace, claim.Name)},
			},
			ClaimRef: &v1.ObjectReference{
				APIVersion: "v1", Kind: podspec.Claim, Namespace: claim.Namespace, Name: claim.Name,
				UID: claim.UID,
			},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchFields: []v1.NodeSelectorRequirement{
					{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{c.c.Node}},
				},
			}}}},
		},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound},
	}
}

// VolumeSecret returns a Secret that a volume of the pod refers to. The volumes of claims from manifests refer to no
// Secret.
func (c *Claims) VolumeSecret(pod *v1.Pod, namespace, name string) (*v1.Secret, error) {
	if c.c.API == nil || local.IsStatic(pod) {
		return nil, notFound("secret", name)
	}
	return c.c.API.VolumeSecret(pod, namespace, name)
}

// Renew reads all objects of the pod's volumes from the API server again. Claims from manifests are always current.
func (c *Claims) Renew(ctx context.Context, pod *v1.Pod) error {
	if c.c.API == nil || local.IsStatic(pod) {
		return ctx.Err()
	}
	return c.c.API.Renew(ctx, pod)
}

func notFound(kind, name string) error { return apierrors.NewNotFound(v1.Resource(kind), name) }

// A Dir describes the directory of a claim.
type Dir struct {
	Namespace, Name string
	Path            string
	Used            int64
	Enforced        bool // the file system enforces the claim's size
	Claimed         bool // a manifest contains the claim
}

// Exists reports whether a claim has a directory.
func (c *Claims) Exists(namespace, name string) bool {
	fi, err := os.Lstat(c.Path(namespace, name))
	return err == nil && fi.IsDir()
}

// List returns the directories of all claims.
func (c *Claims) List() (all []Dir) {
	claimed := map[[2]string]bool{}
	for _, o := range c.c.Local.List() {
		if o.Kind == podspec.Claim && !o.Gone {
			claimed[[2]string{o.Namespace, o.Name}] = true
		}
	}
	found, err := filepath.Glob(filepath.Join(c.c.Dir, "*", "*"))
	if err != nil {
		return nil // bad pattern
	}
	for _, path := range found {
		d := Dir{Namespace: filepath.Base(filepath.Dir(path)), Name: filepath.Base(path), Path: path, Used: -1}
		if strings.HasSuffix(path, unfinishedSuffix) || strings.HasPrefix(d.Name, removedPrefix) {
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

// ErrInUse is returned by Remove if a pod uses the claim or a manifest contains it.
var ErrInUse = errors.New("it is in use")

// Remove permanently deletes the directory of a claim, with all its data. It returns ErrInUse while a manifest
// contains the claim or a pod refers to it. It first moves the directory away. So a later claim with the same name never
// gets a part of the data, even after a power cut, and the deletion of many files delays no pod.
func (c *Claims) Remove(namespace, name string) error {
	removed, err := c.moveAway(namespace, name)
	if err != nil {
		return err
	}
	return c.deleteData(context.Background(), removed)
}

// moveAway checks that nothing uses the directory of a claim, and renames the directory, whose new path it returns. It creates no file,
// because a user deletes data when the disk is full.
func (c *Claims) moveAway(namespace, name string) (removed string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.c.Local.List() {
		if o.Kind == podspec.Claim && !o.Gone && o.Namespace == namespace && o.Name == name {
			return "", fmt.Errorf("%w: %s is in %s: remove it there first", ErrInUse, o.Key, originOf(o))
		}
	}
	if c.c.Local.IsUsed(podspec.Claim, namespace, name) {
		return "", fmt.Errorf("%w: a pod uses the claim %s/%s: delete the pod first", ErrInUse, namespace, name)
	}
	dir := c.Path(namespace, name)
	if _, err := os.Lstat(dir); err != nil {
		return "", err
	}
	below, err := mounts.ListBelow(dir)
	if err == nil && len(below) > 0 {
		err = fmt.Errorf("something is mounted at %q: unmount it first", below)
	}
	if err != nil {
		return "", fmt.Errorf("remove the data of claim %s/%s: %w", namespace, name, err)
	}
	removed = filepath.Join(filepath.Dir(dir), removedPrefix+rand.Text())
	if _, err = os.Lstat(removed); err == nil {
		err = fmt.Errorf("%s: %w", removed, fs.ErrExist)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = os.Rename(dir, removed)
	}
	if err != nil {
		return "", fmt.Errorf("remove the data of claim %s/%s: %w", namespace, name, err)
	}
	c.removals[removed] = true
	if err := durable.SyncDir(filepath.Dir(dir)); err != nil { // the data is deleted nevertheless
		c.c.Log.Warn("cannot sync the removal of a claim", "claim", namespace+"/"+name, "error", err)
	}
	return removed, nil
}

// deleteData deletes a directory that moveAway has returned, with the data in it. If ctx ends, it returns after the current file.
func (c *Claims) deleteData(ctx context.Context, removed string) error {
	if c.c.Quota != nil {
		if err := c.c.Quota.RemoveLimit(removed); err != nil {
			c.c.Log.Warn("cannot release the quota of a removed claim", "path", removed, "error", err)
		}
	}
	err := mounts.RemoveUntil(ctx, removed)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.removals, removed)
	_ = os.Remove(filepath.Dir(removed)) // removes the namespace's directory, if it is empty
	if err != nil {
		if ctx.Err() == nil { // the user may have stopped waiting
			c.c.Log.Warn("cannot delete the data of a removed claim", "path", removed, "error", err)
		}
		return fmt.Errorf("delete the data of a removed claim (the same command, or the next start of islet, tries again): %w", err)
	}
	return nil
}

// Sweep deletes the data of removed claims whose deletion has failed, or has not ended because the agent or the machine has stopped. If ctx
// ends, it returns after the current file.
func (c *Claims) Sweep(ctx context.Context) { _, _ = c.removeRest(ctx, "*") } // the errors are logged

// RemoveRest deletes the data of removed claims of a namespace whose deletion has failed. It reports whether there is such data. It returns
// an error if it cannot delete all of it, or if another call is deleting a part of it.
func (c *Claims) RemoveRest(namespace string) (found bool, err error) {
	return c.removeRest(context.Background(), namespace)
}

func (c *Claims) removeRest(ctx context.Context, namespace string) (found bool, first error) {
	paths, err := filepath.Glob(filepath.Join(c.c.Dir, namespace, removedPrefix+"*"))
	if err != nil {
		return false, err // bad pattern
	}
	for _, path := range paths {
		if ctx.Err() != nil {
			break
		}
		c.mu.Lock()
		removing := c.removals[path]
		c.removals[path] = true
		c.mu.Unlock()
		if removing {
			first = cmp.Or(first, fmt.Errorf("the data of a removed claim is still being deleted: %s", path))
			continue
		}
		first = cmp.Or(first, c.deleteData(ctx, path))
	}
	return len(paths) > 0, first
}

func originOf(o local.Info) string {
	if o.Origin == "" {
		return "source " + o.Source
	}
	return o.Origin
}
