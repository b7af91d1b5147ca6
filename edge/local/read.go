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
	"github.com/islet-edge/islet/internal/sorting"
)

// uidOf returns a UID that survives restarts and differs from the UIDs of API objects. The records of image pulls contain this UID.
func uidOf(k Key) types.UID {
	h := fnv.New128a()
	fmt.Fprintf(h, "local:%s\x00%s\x00%s\x00%s", k.Source, k.Kind, k.Namespace, k.Name)
	return types.UID(hex.EncodeToString(h.Sum(nil)))
}

// get returns an object that a pod references. If there is no such object, apierrors.IsNotFound is true for the error.
func (o *Objects) get(pod *v1.Pod, kind, name string) (manifest.Object, error) {
	k := Key{Source: sourceOf(pod), Kind: kind, Namespace: pod.Namespace, Name: name}
	o.mu.RLock()
	defer o.mu.RUnlock()
	if r, ok := o.rows[k]; ok && (!r.isRemoved || o.pods[pod.UID][k]) {
		return r.object, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource(strings.ToLower(kind)), name) // the message of a kubelet: configmap "x" not found
}

// ConfigMap returns a ConfigMap of the pod's source and namespace. If there is no such ConfigMap, apierrors.IsNotFound is true for the
// error. A pod that used the ConfigMap before its removal still gets it.
func (o *Objects) ConfigMap(pod *v1.Pod, name string) (*v1.ConfigMap, error) {
	obj, err := o.get(pod, podspec.ConfigMap, name)
	if err != nil {
		return nil, err
	}
	return obj.(*v1.ConfigMap), nil
}

// Secret returns a Secret. It works like ConfigMap.
func (o *Objects) Secret(pod *v1.Pod, name string) (*v1.Secret, error) {
	obj, err := o.get(pod, podspec.Secret, name)
	if err != nil {
		return nil, err
	}
	return obj.(*v1.Secret), nil
}

// Claim returns a PersistentVolumeClaim as its manifest defines it. It works like ConfigMap.
func (o *Objects) Claim(pod *v1.Pod, name string) (*v1.PersistentVolumeClaim, error) {
	obj, err := o.get(pod, podspec.Claim, name)
	if err != nil {
		return nil, err
	}
	return obj.(*v1.PersistentVolumeClaim), nil
}

// Deleted reports whether a ConfigMap or Secret of the pod was removed from its manifest.
func (o *Objects) Deleted(pod *v1.Pod, kind, name string) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.rows[Key{Source: sourceOf(pod), Kind: kind, Namespace: pod.Namespace, Name: name}].isRemoved
}

// errNoAccount is the error of Token. Only an API server has service accounts.
var errNoAccount = errors.New("a pod of a manifest has no service account")

// Token always returns an error, because these pods have no service account.
func (o *Objects) Token(*v1.Pod, *v1.ServiceAccountTokenProjection) (string, error) {
	return "", fmt.Errorf("service account token: %w", errNoAccount)
}

// PullSecrets returns the credentials for an image from the pod's imagePullSecrets, and the names of missing Secrets. See
// https://kubernetes.io/docs/concepts/containers/images/#specifying-imagepullsecrets-on-a-pod.
func (o *Objects) PullSecrets(_ context.Context, pod *v1.Pod, image string) (has []keyring.Credential, missing []string) {
	var ring keyring.Ring
	missing = ring.AddPullSecrets(pod, o.Secret, keyring.LogPullSecret(o.c.Log, pod, image))
	return ring.Lookup(image), missing
}

// An Info describes an object.
type Info struct {
	Key
	Origin string
	Gone   bool            // removed from its manifest, and kept for the pods that use it
	Object manifest.Object // must not be modified
	Pods   []types.UID     // pods that reference the object
}

// List returns all objects, sorted by kind, namespace, name and source.
func (o *Objects) List() []Info {
	o.mu.RLock()
	defer o.mu.RUnlock()
	users := map[Key][]types.UID{}
	for uid, uses := range o.pods {
		for k := range uses {
			users[k] = append(users[k], uid)
		}
	}
	list := make([]Info, 0, len(o.rows))
	for k, r := range o.rows {
		slices.Sort(users[k])
		list = append(list, Info{Key: k, Origin: r.origin, Gone: r.isRemoved, Object: r.object, Pods: users[k]})
	}
	sorting.By(list, func(a, b Info) int {
		return cmp.Or(
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Source, b.Source),
		)
	})
	return list
}

// IsUsed reports whether any static pod references an object.
func (o *Objects) IsUsed(kind, namespace, name string) bool {
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
