package local

import (
	"bytes"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/podspec"
)

// A row is an object that a manifest defines or has defined. A row is never modified. A changed object gets a new row.
type row struct {
	object    manifest.Object
	origin    string
	isRemoved bool // no manifest defines it any more
}

// rows is the set of all objects. Its methods do no I/O.
type rows map[Key]row

func keyOf(source string, obj manifest.Object) Key {
	return Key{Source: source, Kind: manifest.KindOf(obj), Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// set replaces the objects of a source and returns their problems. If two origins define the same object, the origin of the existing object
// takes precedence. If the object is new, the first origin takes precedence.
func (r rows) set(source string, claimed []DefinedObject, unsure map[string]bool, now time.Time) (problems []Problem) {
	first := map[Key]string{}
	for _, c := range claimed {
		k := keyOf(source, c.Object)
		if _, twice := first[k]; !twice || r[k].origin == c.Origin {
			first[k] = c.Origin
		}
	}
	for k, old := range r {
		if _, wanted := first[k]; k.Source == source && !wanted && !unsure[old.origin] {
			old.isRemoved = true
			r[k] = old
		}
	}
	for _, c := range claimed {
		k := keyOf(source, c.Object)
		if origin := first[k]; origin != c.Origin {
			problems = append(problems, Problem{source, c.Origin, "metadata.name", fmt.Sprintf("%s is already defined by %s", k, origin)})
		} else if old, found := r[k]; found && !old.isRemoved && old.origin != c.Origin && unsure[old.origin] {
			why := fmt.Sprintf("%s is already defined by %s, which came first", k, old.origin)
			problems = append(problems, Problem{source, c.Origin, "metadata.name", why})
		} else if p := r.put(source, c, now); p != nil {
			problems = append(problems, *p)
		}
	}
	return problems
}

// put adds or replaces an object of a source. If that is not possible, it returns the reason.
func (r rows) put(source string, c DefinedObject, now time.Time) *Problem {
	k := keyOf(source, c.Object)
	old, found := r[k]
	if field, why := r.whyRefused(k, old, found, c.Object); why != "" {
		return &Problem{source, c.Origin, field, why}
	}
	obj := c.Object.DeepCopyObject().(manifest.Object)
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // the store does not contain the kind
	obj.SetUID(uidOf(k))
	obj.SetCreationTimestamp(metav1.Time{Time: now.Truncate(time.Second)})
	if found && !old.isRemoved {
		obj.SetCreationTimestamp(old.object.GetCreationTimestamp())
		if equality.Semantic.DeepEqual(old.object, obj) {
			obj = old.object
		}
	}
	r[k] = row{object: obj, origin: c.Origin}
	return nil
}

// whyRefused returns the reason why an object cannot be added, or cannot replace its existing row. It returns "" if the object is accepted.
func (r rows) whyRefused(k Key, old row, found bool, obj manifest.Object) (field, why string) {
	if k.Kind == podspec.Claim {
		for other, row := range r {
			if other != k && !row.isRemoved && other.Kind == k.Kind && other.Namespace == k.Namespace && other.Name == k.Name {
				return "metadata.name", fmt.Sprintf("%s is already defined by %s, which came first", k, row.originOf(other))
			}
		}
	}
	if !found || old.isRemoved {
		return "", ""
	}
	return immutableField(old.object, obj)
}

// immutableField returns the first immutable field in which the new object differs from the old one, and the reason why this field is
// immutable.
func immutableField(old, obj manifest.Object) (field, why string) {
	const frozen = "field is immutable when `immutable` is set"
	switch o := old.(type) {
	case *v1.ConfigMap:
		n := obj.(*v1.ConfigMap)
		if !podspec.IsTrue(o.Immutable) {
			return "", ""
		}
		sameData := equality.Semantic.DeepEqual(o.Data, n.Data) && equality.Semantic.DeepEqual(o.BinaryData, n.BinaryData)
		if !podspec.IsTrue(n.Immutable) || !sameData {
			return "data", frozen
		}
	case *v1.Secret:
		n := obj.(*v1.Secret)
		if podspec.IsTrue(o.Immutable) && (!podspec.IsTrue(n.Immutable) || !equality.Semantic.DeepEqual(o.Data, n.Data)) {
			return "data", frozen
		}
		if o.Type != n.Type {
			return "type", "field is immutable"
		}
	case *v1.PersistentVolumeClaim:
		if has, wants := sizeOf(o), sizeOf(obj.(*v1.PersistentVolumeClaim)); wants < has {
			return "spec.resources.requests[storage]", fmt.Sprintf("field can not be less than before, %d bytes", has)
		}
	}
	return "", ""
}

// originOf returns the origin of an object, or its source.
func (r row) originOf(k Key) string {
	if r.origin == "" {
		return "source " + k.Source
	}
	return r.origin
}

func sizeOf(c *v1.PersistentVolumeClaim) int64 {
	q := c.Spec.Resources.Requests[v1.ResourceStorage]
	return q.Value()
}

// compareRows compares two states. It returns the rows to write, the rows to remove, and the objects with a change that is visible to pods.
func compareRows(old, next rows) (put []store.Local, remove []store.LocalKey, changed map[Key]bool, err error) {
	changed = map[Key]bool{}
	for k, r := range next {
		before, found := old[k]
		if found && before == r {
			continue
		}
		data, err := r.object.Marshal()
		if err != nil {
			return nil, nil, nil, fmt.Errorf("encode %s: %w", k, err)
		}
		put = append(put, store.Local{LocalKey: k, Origin: r.origin, Gone: r.isRemoved, Data: data})
		if found && before.isRemoved == r.isRemoved {
			oldData, err := before.object.Marshal()
			if err == nil && bytes.Equal(oldData, data) {
				continue
			}
		}
		changed[k] = true
	}
	for k := range old {
		if _, still := next[k]; !still {
			remove = append(remove, k)
			changed[k] = true
		}
	}
	return put, remove, changed, nil
}
