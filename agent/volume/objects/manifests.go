package objects

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/islet-edge/islet/agent/volume/provision"
	"github.com/islet-edge/islet/edge/local"
	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/podspec"
)

// Manifests lists, applies and deletes objects from manifests, on behalf of a user.
type Manifests struct {
	Local   *local.Objects
	Claims  *provision.Claims
	Desired Desired
}

// List returns all objects from manifests. It also returns the directories of claims that no manifest contains any
// more.
func (m Manifests) List() []api.Object {
	dirs := map[[2]string]provision.Dir{}
	for _, d := range m.Claims.List() {
		dirs[[2]string{d.Namespace, d.Name}] = d
	}
	out := []api.Object{}
	for _, o := range m.Local.List() {
		shown := api.Object{
			Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Source: o.Source, Origin: o.Origin, Gone: o.Gone,
			Created: o.Object.GetCreationTimestamp().Time, Labels: o.Object.GetLabels(), Pods: m.podNames(o.Pods),
		}
		addDetails(&shown, o.Object)
		if c := shown.Claim; c != nil {
			key := [2]string{o.Namespace, o.Name}
			d, exists := dirs[key]
			c.Path, c.Used, c.Exists, c.Enforced = m.Claims.Path(o.Namespace, o.Name), -1, exists, d.Enforced
			if exists {
				c.Used = d.Used
			}
			delete(dirs, key)
		}
		out = append(out, shown)
	}
	for _, d := range m.Claims.List() {
		if _, unused := dirs[[2]string{d.Namespace, d.Name}]; unused {
			out = append(out, api.Object{
				Kind: podspec.Claim, Namespace: d.Namespace, Name: d.Name,
				Claim: &api.Claim{Path: d.Path, Used: d.Used, Exists: true, Enforced: d.Enforced},
			})
		}
	}
	return out
}

// addDetails adds the fields that are specific to the object's kind. It does not add the values of a Secret.
func addDetails(to *api.Object, obj manifest.Object) {
	to.Keys = map[string]int{}
	switch o := obj.(type) {
	case *v1.ConfigMap:
		to.Immutable = o.Immutable != nil && *o.Immutable
		for k, v := range o.Data {
			to.Keys[k] = len(v)
		}
		for k, v := range o.BinaryData {
			to.Keys[k] = len(v)
		}
	case *v1.Secret:
		to.Type, to.Immutable = string(o.Type), o.Immutable != nil && *o.Immutable
		for k, v := range o.Data {
			to.Keys[k] = len(v)
		}
	case *v1.PersistentVolumeClaim:
		size := o.Spec.Resources.Requests[v1.ResourceStorage]
		to.Claim = &api.Claim{Size: size.Value()}
	}
}

func (m Manifests) podNames(pods []types.UID) (podNames []string) {
	for _, uid := range pods {
		if d, ok := m.Desired.Get(uid); ok {
			podNames = append(podNames, d.Pod.Namespace+"/"+d.Pod.Name)
		}
	}
	return podNames
}

// Apply creates or updates objects on behalf of a user. If it fails for one object, it changes none.
func (m Manifests) Apply(ctx context.Context, all []manifest.Object, dry bool) ([]api.Applied, error) {
	actions, err := m.Local.Apply(ctx, all, dry)
	if err != nil {
		return nil, err
	}
	done := make([]api.Applied, len(all))
	for i, o := range all {
		done[i] = api.Applied{Kind: manifest.KindOf(o), Namespace: o.GetNamespace(), Name: o.GetName(), Action: actions[i]}
	}
	return done, nil
}

// Delete removes an object that a user has applied. If data is true and the object is a claim, it also deletes the
// claim's files.
func (m Manifests) Delete(ctx context.Context, kind, namespace, name string, data bool) api.Deleted {
	d := api.Deleted{Kind: kind, Namespace: namespace, Name: name}
	if len(validation.IsDNS1123Label(namespace))+len(validation.IsDNS1123Subdomain(name)) > 0 { // namespace and name become parts of a path
		d.NotFound, d.Error = true, fmt.Sprintf("%s %q/%q not found", kind, namespace, name)
		return d
	}
	if kind == podspec.Claim && data && m.Local.IsUsed(kind, namespace, name) { // the data must be deleted before the manifest
		d.Error = fmt.Sprintf("claim %s/%s is in use by a pod: delete the pod first", namespace, name)
		return d
	}
	found, err := m.Local.Delete(ctx, kind, namespace, name)
	switch {
	case err != nil:
		d.Error = err.Error()
		return d
	case !found:
		for _, o := range m.Local.List() {
			if o.Kind == kind && o.Namespace == namespace && o.Name == name && !o.Gone {
				d.Error = fmt.Sprintf("%s comes from the %s source: remove it from %s", o.Key, o.Source, o.Origin)
				return d
			}
		}
	}
	if kind == podspec.Claim {
		return m.deleteData(d, found, data)
	}
	if d.NotFound = !found; d.NotFound {
		d.Error = fmt.Sprintf("%s %s/%s not found", kind, namespace, name)
	}
	return d
}

// deleteData removes the directory of a claim that no manifest contains, if data is true. If data is false, it
// reports that the directory remains.
func (m Manifests) deleteData(d api.Deleted, found, data bool) api.Deleted {
	path := m.Claims.Path(d.Namespace, d.Name)
	exists := m.Claims.Exists(d.Namespace, d.Name)
	switch {
	case data:
		return m.removeData(d, found, exists)
	case !found && !exists:
		d.NotFound, d.Error = true, fmt.Sprintf("%s %s/%s not found", d.Kind, d.Namespace, d.Name)
	case !exists: // no pod has ever used the claim
	case found:
		d.Note = fmt.Sprintf("its data remains in %s: 'islet delete pvc %s -n %s --delete-data' deletes it permanently",
			path, d.Name, d.Namespace)
	default:
		d.Error = fmt.Sprintf("the claim %s/%s is in no manifest, but its data remains in %s: --delete-data deletes it permanently",
			d.Namespace, d.Name, path)
	}
	return d
}

// removeData removes the directory of a claim, if it exists. Then it tries the failed deletions of the namespace again, so that a user can
// repeat a command that has failed. If the claim or its directory existed, the failed deletions belong to other claims, or to an earlier
// claim with the same name. An error of these deletions is then only mentioned in the result.
func (m Manifests) removeData(d api.Deleted, found, exists bool) api.Deleted {
	if exists {
		if err := m.Claims.Remove(d.Namespace, d.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.Error = err.Error()
			return d
		}
	}
	rest, err := m.Claims.RemoveRest(d.Namespace)
	switch there := found || exists; {
	case err != nil && there:
		d.Note = err.Error()
	case err != nil:
		d.Error = err.Error()
	case !there && !rest:
		d.NotFound, d.Error = true, fmt.Sprintf("%s %s/%s not found", d.Kind, d.Namespace, d.Name)
	}
	return d
}
