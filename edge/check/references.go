package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/spelling"
)

// missingObjects reports the ConfigMaps, Secrets and claims that the pod refers to, but that are neither in the files nor on the node. It
// also reports references to keys that a ConfigMap or Secret does not have.
func (p *pod) missingObjects() {
	p.eachReference(func(at *field.Path, kind, name, key string, optional bool) {
		if name == "" || optional {
			return
		}
		ref := reference{kind, p.Namespace, name}
		found, keys := p.lookUp(ref)
		switch {
		case !found:
			p.warnf(at.String(), "%s %q is %s; the pod waits until it exists%s", kind, name, p.nowhere(), p.similar(ref))
		case key != "" && keys != nil && !slices.Contains(keys, key):
			p.warnf(at.String(), "%s %q has no key %q, but %s", kind, name, key, enumerate(keys))
		}
	})
}

func (p *pod) nowhere() string {
	if p.node != nil {
		return "neither in the files nor among the applied objects of this node"
	}
	return "not in the checked files"
}

// lookUp reports whether an object is known, and returns the object's keys. The result keys is nil
// if the keys are unknown.
func (c *checkup) lookUp(ref reference) (found bool, keys []string) {
	if d := c.defined[ref]; d != nil {
		return true, d.keys
	}
	if c.node == nil {
		return false, nil
	}
	for i := range c.node.Objects {
		o := &c.node.Objects[i]
		if o.Kind == ref.kind && o.Namespace == ref.namespace && o.Name == ref.name && !o.Gone {
			if ref.kind == podspec.Claim {
				return true, nil
			}
			return true, slices.Sorted(maps.Keys(o.Keys))
		}
	}
	return false, nil
}

// similar returns a hint that names the object in the files with the most similar name.
func (p *pod) similar(ref reference) string {
	if p.full() {
		return ""
	}
	best := spelling.Nearest(ref.name, func(yield func(string) bool) {
		for _, name := range slices.Sorted(p.names(ref)) {
			if !yield(name) {
				return
			}
		}
	})
	if best == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean %q?", best)
}

// names yields the names of the objects with the kind and namespace of a reference.
func (p *pod) names(ref reference) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for d := range p.defined {
			if d.kind == ref.kind && d.namespace == ref.namespace && !yield(d.name) {
				return
			}
		}
	}
}

// maxKeys is the maximum number of keys in a message.
const maxKeys = 10

func enumerate(keys []string) string {
	if len(keys) == 0 {
		return "none at all"
	}
	text := strings.Join(keys[:min(len(keys), maxKeys)], ", ")
	if len(keys) > maxKeys {
		text += fmt.Sprintf(" and %d more", len(keys)-maxKeys)
	}
	return text
}

// eachReference calls visit for the same references as podspec.VisitReferences. It also passes the field of each reference. In addition,
// it calls visit for each key that a volume uses. The key is empty if the pod uses the whole object.
func (p *pod) eachReference(visit func(at *field.Path, kind, name, key string, optional bool)) {
	spec := field.NewPath("spec")
	for i, s := range p.Spec.ImagePullSecrets {
		visit(spec.Child("imagePullSecrets").Index(i).Child("name"), podspec.Secret, s.Name, "", false)
	}
	p.eachContainer(func(at *field.Path, c *v1.Container) { visitEnvironment(at, c, visit) })
	for i := range p.Spec.Volumes {
		at := spec.Child("volumes").Index(i)
		switch v := &p.Spec.Volumes[i]; {
		case v.ConfigMap != nil:
			visitItems(at.Child("configMap"), "name", podspec.ConfigMap, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional, visit)
		case v.Secret != nil:
			visitItems(at.Child("secret"), "secretName", podspec.Secret, v.Secret.SecretName, v.Secret.Items, v.Secret.Optional, visit)
		case v.PersistentVolumeClaim != nil:
			visit(at.Child("persistentVolumeClaim", "claimName"), podspec.Claim, v.PersistentVolumeClaim.ClaimName, "", false)
		case v.Projected != nil:
			for j, s := range v.Projected.Sources {
				at := at.Child("projected", "sources").Index(j)
				if m := s.ConfigMap; m != nil {
					visitItems(at.Child("configMap"), "name", podspec.ConfigMap, m.Name, m.Items, m.Optional, visit)
				}
				if m := s.Secret; m != nil {
					visitItems(at.Child("secret"), "name", podspec.Secret, m.Name, m.Items, m.Optional, visit)
				}
			}
		}
	}
}

type visitReference = func(at *field.Path, kind, name, key string, optional bool)

func visitItems(at *field.Path, nameField, kind, name string, items []v1.KeyToPath, optional *bool, visit visitReference) {
	if len(items) == 0 {
		visit(at.Child(nameField), kind, name, "", podspec.IsTrue(optional))
	}
	for i, item := range items {
		visit(at.Child("items").Index(i).Child("key"), kind, name, item.Key, podspec.IsTrue(optional))
	}
}

func visitEnvironment(at *field.Path, c *v1.Container, visit visitReference) {
	for i, f := range c.EnvFrom {
		at := at.Child("envFrom").Index(i)
		if r := f.ConfigMapRef; r != nil {
			visit(at.Child("configMapRef", "name"), podspec.ConfigMap, r.Name, "", podspec.IsTrue(r.Optional))
		}
		if r := f.SecretRef; r != nil {
			visit(at.Child("secretRef", "name"), podspec.Secret, r.Name, "", podspec.IsTrue(r.Optional))
		}
	}
	for i, e := range c.Env {
		at := at.Child("env").Index(i).Child("valueFrom")
		if e.ValueFrom == nil {
			continue
		}
		if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
			visit(at.Child("configMapKeyRef", "key"), podspec.ConfigMap, r.Name, r.Key, podspec.IsTrue(r.Optional))
		}
		if r := e.ValueFrom.SecretKeyRef; r != nil {
			visit(at.Child("secretKeyRef", "key"), podspec.Secret, r.Name, r.Key, podspec.IsTrue(r.Optional))
		}
	}
}
