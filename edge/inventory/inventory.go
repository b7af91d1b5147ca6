package inventory

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/finding"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/sorting"
)

// Read returns the inventory of manifests. The error names every problem of the manifests, as islet apply does. A manifest without pods and
// objects is an error.
func Read(files []finding.File) (*bundle.Inventory, error) {
	inv := &bundle.Inventory{}
	var errs []error
	for _, f := range files {
		set, err := manifest.Decode(f.Data, manifest.Options{Origin: f.Name, Source: keys.SourceLocal, Lists: true})
		if err == nil && set.IsEmpty() {
			err = &manifest.Error{Origin: f.Name, Detail: "contains no pod and no object that pods use"}
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, p := range set.Pods {
			inv.Pods = append(inv.Pods, describePod(p))
		}
		for _, o := range set.Objects {
			inv.Objects = append(inv.Objects, describeObject(o))
		}
	}
	return inv, errors.Join(errs...)
}

func describePod(p *v1.Pod) bundle.Pod {
	out := bundle.Pod{Namespace: p.Namespace, Name: p.Name, References: references(&p.Spec), Devices: devices(&p.Spec)}
	for _, ref := range podspec.Images(&p.Spec) {
		out.Images = append(out.Images, podspec.FullImage(ref))
	}
	slices.Sort(out.Images)
	out.Images = slices.Compact(out.Images)
	return out
}

func describeObject(o manifest.Object) bundle.Object {
	out := bundle.Object{Kind: manifest.KindOf(o), Namespace: o.GetNamespace(), Name: o.GetName()}
	switch o := o.(type) {
	case *v1.ConfigMap:
		out.Keys = slices.AppendSeq(slices.Collect(maps.Keys(o.Data)), maps.Keys(o.BinaryData))
	case *v1.Secret:
		out.Keys, out.Plain = slices.Collect(maps.Keys(o.Data)), true
	}
	slices.Sort(out.Keys)
	return out
}

// references returns the references of a pod that are not optional.
func references(spec *v1.PodSpec) (out []bundle.Reference) {
	add := func(kind, name, key string, optional *bool) {
		if name != "" && !podspec.IsTrue(optional) {
			out = append(out, bundle.Reference{Kind: kind, Name: name, Key: key})
		}
	}
	for _, s := range spec.ImagePullSecrets {
		add(podspec.Secret, s.Name, "", nil)
	}
	for _, c := range podspec.Containers(spec) {
		for _, f := range c.EnvFrom {
			if r := f.ConfigMapRef; r != nil {
				add(podspec.ConfigMap, r.Name, "", r.Optional)
			}
			if r := f.SecretRef; r != nil {
				add(podspec.Secret, r.Name, "", r.Optional)
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom == nil {
				continue
			}
			if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
				add(podspec.ConfigMap, r.Name, r.Key, r.Optional)
			}
			if r := e.ValueFrom.SecretKeyRef; r != nil {
				add(podspec.Secret, r.Name, r.Key, r.Optional)
			}
		}
	}
	for i := range spec.Volumes {
		volumeReferences(&spec.Volumes[i], add)
	}
	sorting.By(out, func(a, b bundle.Reference) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name), strings.Compare(a.Key, b.Key))
	})
	return slices.Compact(out)
}

// volumeReferences calls add for the objects of a volume, and for the keys that it names.
func volumeReferences(v *v1.Volume, add func(kind, name, key string, optional *bool)) {
	object := func(kind, name string, items []v1.KeyToPath, optional *bool) {
		add(kind, name, "", optional)
		for _, i := range items {
			add(kind, name, i.Key, optional)
		}
	}
	switch {
	case v.ConfigMap != nil:
		object(podspec.ConfigMap, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional)
	case v.Secret != nil:
		object(podspec.Secret, v.Secret.SecretName, v.Secret.Items, v.Secret.Optional)
	case v.PersistentVolumeClaim != nil:
		add(podspec.Claim, v.PersistentVolumeClaim.ClaimName, "", nil)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if m := s.ConfigMap; m != nil {
				object(podspec.ConfigMap, m.Name, m.Items, m.Optional)
			}
			if m := s.Secret; m != nil {
				object(podspec.Secret, m.Name, m.Items, m.Optional)
			}
		}
	}
}

// devices returns the sum of the extended resources that the containers request. The node gives a device to one container at a time, except
// that an init container's devices are given to the containers after it.
func devices(spec *v1.PodSpec) map[string]int64 {
	sum, first := map[string]int64{}, map[string]int64{}
	for _, c := range spec.Containers {
		for name, n := range c.Resources.Limits {
			if isDevice(name) {
				sum[string(name)] += n.Value()
			}
		}
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		for name, n := range c.Resources.Limits {
			switch {
			case !isDevice(name):
			case podspec.IsSidecar(c):
				sum[string(name)] += n.Value()
			default:
				first[string(name)] = max(first[string(name)], n.Value())
			}
		}
	}
	for name, n := range first {
		sum[name] = max(sum[name], n)
	}
	if len(sum) == 0 {
		return nil
	}
	return sum
}

// isDevice reports whether a resource is an extended resource, whose name has a domain other than kubernetes.io.
func isDevice(name v1.ResourceName) bool {
	domain, _, found := strings.Cut(string(name), "/")
	return found && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io")
}
