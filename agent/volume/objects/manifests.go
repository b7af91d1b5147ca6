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

// Manifests show the objects of manifests to a person, and take those that a person
// applies.
type Manifests struct {
	Local   *local.Objects
	Claims  *provision.Claims
	Desired Desired
}

// List gives all objects, and the directories of claims that no manifest holds.
func (m Manifests) List() []api.Object {
	dirs := map[[2]string]provision.Dir{}
	for _, d := range m.Claims.List() {
		dirs[[2]string{d.Namespace, d.Name}] = d
	}
	out := []api.Object{}
	for _, o := range m.Local.List() {
		shown := api.Object{
			Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Source: o.Source, Origin: o.Origin, Gone: o.Gone,
			Created: o.Object.GetCreationTimestamp().Time, Labels: o.Object.GetLabels(), Pods: m.names(o.Pods),
		}
		describe(&shown, o.Object)
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
			out = append(out, api.Object{Kind: podspec.Claim, Namespace: d.Namespace, Name: d.Name, Claim: &api.Claim{Path: d.Path, Used: d.Used, Exists: true, Enforced: d.Enforced}})
		}
	}
	return out
}

// describe adds what objects of a kind have. The values of a Secret are nobody's to see.
func describe(to *api.Object, obj manifest.Object) {
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

func (m Manifests) names(pods []types.UID) (names []string) {
	for _, uid := range pods {
		if d, ok := m.Desired.Get(uid); ok {
			names = append(names, d.Pod.Namespace+"/"+d.Pod.Name)
		}
	}
	return names
}

// Apply adds objects to those that a person applied, or changes them, all or none.
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

// Delete removes an object that a person applied. The data of a claim stays unless told.
func (m Manifests) Delete(ctx context.Context, kind, namespace, name string, data bool) api.Deleted {
	d := api.Deleted{Kind: kind, Namespace: namespace, Name: name}
	if len(validation.IsDNS1123Label(namespace))+len(validation.IsDNS1123Subdomain(name)) > 0 { // it becomes a path
		d.NotFound, d.Error = true, fmt.Sprintf("%s %q/%q not found", kind, namespace, name)
		return d
	}
	if kind == podspec.Claim && data && m.Local.Used(kind, namespace, name) { // then it stays whole
		d.Error = fmt.Sprintf("claim %s/%s is in use: a pod has it, delete that first", namespace, name)
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

// deleteData removes the directory of a claim that is in no manifest, if it is told to.
func (m Manifests) deleteData(d api.Deleted, found, data bool) api.Deleted {
	path := m.Claims.Path(d.Namespace, d.Name)
	exists := m.Claims.Exists(d.Namespace, d.Name)
	switch {
	case !found && !exists:
		d.NotFound, d.Error = true, fmt.Sprintf("%s %s/%s not found", d.Kind, d.Namespace, d.Name)
	case !exists: // no pod ever used it
	case data:
		if err := m.Claims.Remove(d.Namespace, d.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.Error = err.Error()
		}
	case found:
		d.Note = fmt.Sprintf("its data stays in %s: 'islet delete pvc %s -n %s --delete-data' removes it for ever", path, d.Name, d.Namespace)
	default:
		d.Error = fmt.Sprintf("no manifest has the claim %s/%s any more, but its data is in %s: --delete-data removes it for ever", d.Namespace, d.Name, path)
	}
	return d
}
