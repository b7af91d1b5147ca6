package bundle

import (
	"fmt"
	"slices"
)

// An Inventory is what the manifests of a bundle define and need.
type Inventory struct {
	Pods    []Pod
	Objects []Object // also objects in sealed files
}

// A Pod is what a pod needs.
type Pod struct {
	Namespace, Name string
	Images          []string // complete names, sorted
	References      []Reference
	Devices         map[string]int64 // extended resources that all containers together request
}

// An Object is a ConfigMap, a Secret or a PersistentVolumeClaim.
type Object struct {
	Kind, Namespace, Name string
	Keys                  []string // of a ConfigMap or Secret
	Plain                 bool     // it is a Secret that is not sealed
}

// A Reference is a reference of a pod to an object of its namespace. The key is empty if the pod uses the whole object. Optional references
// are not part of an inventory.
type Reference struct{ Kind, Name, Key string }

// Images returns the complete names of all images, sorted and without duplicates.
func (i *Inventory) Images() (names []string) {
	for _, p := range i.Pods {
		names = append(names, p.Images...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// MissingObjects returns a line for each object or key that a pod needs and the bundle does not have. Pods of a bundle can use only objects
// of the bundle.
func (i *Inventory) MissingObjects() (missing []string) {
	for _, p := range i.Pods {
		for _, r := range p.References {
			at := slices.IndexFunc(i.Objects, func(o Object) bool {
				return o.Kind == r.Kind && o.Namespace == p.Namespace && o.Name == r.Name
			})
			switch {
			case at < 0:
				missing = append(missing, fmt.Sprintf("%s %s/%s, which pod %s/%s needs", r.Kind, p.Namespace, r.Name, p.Namespace, p.Name))
			case r.Key != "" && !slices.Contains(i.Objects[at].Keys, r.Key):
				missing = append(missing, fmt.Sprintf("key %q of %s %s/%s, which pod %s/%s needs", r.Key, r.Kind, p.Namespace, r.Name,
					p.Namespace, p.Name))
			}
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}

// Twice returns a line for each pod or object that is defined more than once.
func (i *Inventory) Twice() (twice []string) {
	seen := map[string]bool{}
	add := func(kind, namespace, name string) {
		id := kind + " " + namespace + "/" + name
		if seen[id] {
			twice = append(twice, id)
		}
		seen[id] = true
	}
	for _, p := range i.Pods {
		add("Pod", p.Namespace, p.Name)
	}
	for _, o := range i.Objects {
		add(o.Kind, o.Namespace, o.Name)
	}
	return twice
}
