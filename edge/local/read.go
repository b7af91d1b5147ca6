package local

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/internal/keyring"
	"github.com/islet-edge/islet/internal/podspec"
)

// uidOf is the same for an object of a source over restarts, and that of no object of the
// API: what an image was pulled with is remembered under it.
func uidOf(k Key) types.UID {
	h := fnv.New128a()
	fmt.Fprintf(h, "local:%s\x00%s\x00%s\x00%s", k.Source, k.Kind, k.Namespace, k.Name)
	return types.UID(hex.EncodeToString(h.Sum(nil)))
}

// get gives what a pod names, or an error for which apierrors.IsNotFound holds.
func (o *Objects) get(pod *v1.Pod, kind, name string) (manifest.Object, error) {
	k := Key{Source: sourceOf(pod), Kind: kind, Namespace: pod.Namespace, Name: name}
	o.mu.RLock()
	defer o.mu.RUnlock()
	if r, ok := o.rows[k]; ok && (!r.gone || o.pods[pod.UID][k]) {
		return r.object, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource(strings.ToLower(kind)), name) // as a kubelet says it: configmap "x" not found
}

// ConfigMap gives one of the pod's source and namespace. That there is none is an error
// for which apierrors.IsNotFound holds; a pod that had it before it was removed has it
// still.
func (o *Objects) ConfigMap(pod *v1.Pod, name string) (*v1.ConfigMap, error) {
	obj, err := o.get(pod, podspec.ConfigMap, name)
	if err != nil {
		return nil, err
	}
	return obj.(*v1.ConfigMap), nil
}

// Secret is the same for Secrets.
func (o *Objects) Secret(pod *v1.Pod, name string) (*v1.Secret, error) {
	obj, err := o.get(pod, podspec.Secret, name)
	if err != nil {
		return nil, err
	}
	return obj.(*v1.Secret), nil
}

// Claim is the same for PersistentVolumeClaims, as the manifest has them.
func (o *Objects) Claim(pod *v1.Pod, name string) (*v1.PersistentVolumeClaim, error) {
	obj, err := o.get(pod, podspec.Claim, name)
	if err != nil {
		return nil, err
	}
	return obj.(*v1.PersistentVolumeClaim), nil
}

// Deleted reports whether a ConfigMap or Secret (kind) that the pod has is in no manifest
// any more.
func (o *Objects) Deleted(pod *v1.Pod, kind, name string) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.rows[Key{Source: sourceOf(pod), Kind: kind, Namespace: pod.Namespace, Name: name}].gone
}

// errNoAccount refuses tokens: only an API server has service accounts.
var errNoAccount = errors.New("a pod of a manifest has no service account")

// Token refuses.
func (o *Objects) Token(*v1.Pod, *v1.ServiceAccountTokenProjection) (string, error) {
	return "", fmt.Errorf("service account token: %w", errNoAccount)
}

// PullSecrets gives the credentials that the pod's imagePullSecrets have for an image, and
// the names of those that there are not.
// https://kubernetes.io/docs/concepts/containers/images/#specifying-imagepullsecrets-on-a-pod
func (o *Objects) PullSecrets(_ context.Context, pod *v1.Pod, image string) (has []keyring.Credential, missing []string) {
	var all keyring.Ring
	for _, ref := range pod.Spec.ImagePullSecrets {
		secret, err := o.Secret(pod, ref.Name)
		if err != nil {
			missing = append(missing, ref.Name)
		} else {
			err = all.AddSecret(secret)
		}
		if err != nil {
			o.c.Log.Warn("an image pull secret is of no use", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "secret", ref.Name, "image", image, "error", err)
		}
	}
	return all.Lookup(image), missing
}

// An Info is what is known of an object.
type Info struct {
	Key
	Origin string
	Gone   bool            // in no manifest any more, kept for the pods that have it
	Object manifest.Object // not to be changed
	Pods   []types.UID     // that name it
}

// List gives all objects by kind, namespace, name and source.
func (o *Objects) List() []Info {
	o.mu.RLock()
	defer o.mu.RUnlock()
	users := map[Key][]types.UID{}
	for uid, uses := range o.pods {
		for k := range uses {
			users[k] = append(users[k], uid)
		}
	}
	all := make([]Info, 0, len(o.rows))
	for k, r := range o.rows {
		slices.Sort(users[k])
		all = append(all, Info{Key: k, Origin: r.origin, Gone: r.gone, Object: r.object, Pods: users[k]})
	}
	slices.SortFunc(all, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Source, b.Source))
	})
	return all
}

// Used reports whether any pod of the node's own names an object.
func (o *Objects) Used(kind, namespace, name string) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	for _, uses := range o.pods {
		for k := range uses {
			if k.Kind == kind && k.Namespace == namespace && k.Name == name {
				return true
			}
		}
	}
	return false
}
