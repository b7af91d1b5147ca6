package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// MaxSize is the maximum size of a manifest, in bytes. It is also the maximum size of a request to an API server.
const MaxSize = 3 << 20

// Options describes the source of a manifest and the permitted content.
type Options struct {
	// Origin is the file or URL. It is part of error messages and of the UID.
	Origin string
	// Source is a value of the annotation keys.ConfigSource.
	Source string
	// NodeName is the name of this node.
	NodeName string
	// This time becomes the annotation kubernetes.io/config.seen, which does not affect the UID. If it is zero, the annotation is omitted.
	Seen time.Time
	// If this field is true, objects of the kinds List and PodList are permitted. If it is false, each document must be one object, as in a
	// kubelet's manifest directory. In contrast to a kubelet, one file may have several documents, and may also contain objects that pods
	// use.
	Lists bool
	// If this field is true, Decode continues after unknown and duplicate fields, and returns the other errors and the valid pods too. Use
	// it to report as much as possible.
	Partial bool
	// Images maps the complete name of each image to its reference with a digest. Only pods of the source bundle use this map. Decoding
	// replaces their image names by these references. An image that is not in the map is an error. The references are part of the pod's
	// UID, so a pod is replaced if another image has the same name.
	Images map[string]string
}

// Decode decodes a manifest. If any part is invalid, it rejects the whole manifest, because a misspelled pod could otherwise be mistaken
// for a removed one. With Options.Partial, it also returns the valid parts of an invalid manifest. ErrorsIn returns the parts of the error.
// For a manifest without documents, Decode returns an empty set and no error.
func Decode(data []byte, o Options) (Set, error) {
	at := location{origin: o.Origin}
	docs, err := splitDocuments(data)
	if err != nil {
		return Set{}, at.failText(err)
	}
	var set Set
	var errs []error
	objects := 0
	for i, doc := range docs {
		if len(docs) > 1 {
			at.pod = fmt.Sprintf("document %d", i+1)
		}
		raw, err := doc.read(&objects)
		if err != nil {
			errs = append(errs, at.failText(err))
			continue
		}
		found, err := decodeDocument(raw, at, o)
		doc.addLines(err)
		set.add(found)
		errs = append(errs, err)
	}
	errs = append(errs, checkDuplicates(&set, o))
	if err := errors.Join(errs...); err != nil {
		if !o.Partial {
			set = Set{}
		}
		return set, bounded(err)
	}
	return set, nil
}

func decodeDocument(raw []byte, at location, o Options) (Set, error) {
	meta, err := typeOf(raw, at)
	if err != nil {
		return Set{}, err
	}
	if meta.Kind == "" {
		if field, detail := foreignFile(raw); detail != "" {
			return Set{}, at.fail(field, "%s", detail)
		}
	}
	if !strings.HasSuffix(meta.Kind, "List") {
		return decodeItem(raw, meta, at, o)
	}
	item := strings.TrimSuffix(meta.Kind, "List")
	switch {
	case item != "" && item != "Pod" && (!isStatic(o.Source) || New(item) == nil):
		return Set{}, unsupportedKind(meta.Kind, raw, at)
	case !o.Lists:
		return Set{}, at.fail("kind", "Unsupported value: %q: only Pods and the objects they use are allowed here; "+
			"separate several of them by lines of ---", meta.Kind)
	case meta.APIVersion != "v1":
		return Set{}, at.fail("apiVersion", "Unsupported value: %q: a %s is v1", meta.APIVersion, meta.Kind)
	}
	return decodeList(raw, item, at, o)
}

// typeOf decodes only the kind and version of an object.
func typeOf(raw []byte, at location) (metav1.TypeMeta, error) {
	var meta *metav1.TypeMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &meta); err != nil || meta == nil {
		return metav1.TypeMeta{}, at.fail("", "is not a Kubernetes object with apiVersion and kind")
	}
	return *meta, nil
}

// decodeLenient decodes JSON and ignores unknown and duplicate fields. If a field has the wrong type, it returns an error, but still
// decodes the other fields.
func decodeLenient(raw []byte, into any) error {
	return kjson.UnmarshalCaseSensitivePreserveInts(raw, into)
}

// A list is an object of the kind List, or of a typed list such as PodList. Its items are decoded separately, so that each error contains
// the position of its item.
type list struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []json.RawMessage `json:"items"`
}

// decodeList decodes the items of a List, or of a typed list such as PodList. A typed list requires the kind of its items. For a List, the
// kind is empty.
func decodeList(raw []byte, kind string, at location, o Options) (Set, error) {
	var l list
	if err := decodeStrict(raw, &l, at); err != nil {
		return Set{}, err
	}
	var set Set
	var errs []error
	for i, raw := range l.Items {
		item := at
		item.base = fmt.Sprintf("items[%d]", i)
		item.pod = strings.TrimPrefix(at.pod+", "+item.base, ", ")
		meta, err := typeOf(raw, item)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if kind != "" && meta == (metav1.TypeMeta{}) { // items of a typed list may omit the kind
			meta = metav1.TypeMeta{APIVersion: "v1", Kind: kind}
		}
		found, err := decodeItem(raw, meta, item, o)
		set.add(found)
		errs = append(errs, err)
	}
	return set, errors.Join(errs...)
}

// decodeItem decodes a pod or an object that pods use.
func decodeItem(raw []byte, meta metav1.TypeMeta, at location, o Options) (Set, error) {
	obj := New(meta.Kind)
	if !isStatic(o.Source) {
		obj = nil
	}
	switch {
	case meta.Kind == "":
		return Set{}, at.fail("kind", "Required value: this must be a Pod, ConfigMap, Secret or PersistentVolumeClaim")
	case meta.Kind != "Pod" && obj == nil:
		return Set{}, unsupportedKind(meta.Kind, raw, at)
	case meta.APIVersion == "":
		return Set{}, at.fail("apiVersion", "Required value: a %s is v1", meta.Kind)
	case meta.APIVersion != "v1":
		return Set{}, at.fail("apiVersion", "Unsupported value: %q: a %s is v1", meta.APIVersion, meta.Kind)
	}
	if obj != nil {
		obj, err := decodeObject(raw, obj, at)
		if err != nil {
			return Set{}, err
		}
		return Set{Objects: []Object{obj}}, nil
	}
	pod, err := decodePod(raw, meta, at, o)
	if pod == nil {
		return Set{}, err
	}
	return Set{Pods: []*v1.Pod{pod}}, err
}

func decodePod(raw []byte, meta metav1.TypeMeta, at location, o Options) (*v1.Pod, error) {
	pod := &v1.Pod{}
	unknown := decodeStrict(raw, pod, at)
	if unknown != nil && (!o.Partial || !isOnlyStrict(unknown)) {
		return nil, unknown
	}
	pod.TypeMeta = meta
	if pod.Name == "" {
		return nil, errors.Join(unknown, at.fail("metadata.name", "Required value"))
	}
	at.pod = strings.TrimPrefix(fmt.Sprintf("%s, pod %q", at.pod, sanitize(pod.Name)), ", ")
	Default(pod)
	errs := append(checkStaticReferences(pod, o.Source), checkNode(pod, o)...)
	if err := makeStatic(pod, raw, o); err != nil {
		return nil, at.fail("", "%v", err)
	}
	if errs = append(errs, Validate(pod)...); len(errs) > 0 {
		return nil, errors.Join(unknown, at.failAll(errs))
	}
	return pod, unknown
}

// checkDuplicates returns an error if two objects have the same kind, namespace and name.
func checkDuplicates(set *Set, o Options) error {
	type identity struct{ kind, namespace, name string }
	seen := make(map[identity]bool, len(set.Pods)+len(set.Objects))
	var errs []error
	note := func(kind string, m metav1.Object) {
		key := identity{kind, m.GetNamespace(), m.GetName()}
		if seen[key] {
			at := location{origin: o.Origin, pod: fmt.Sprintf("%s %q", kind, m.GetName())}
			errs = append(errs, at.fail("metadata.name", "Duplicate value: namespace %q has this %s twice", m.GetNamespace(), kind))
		}
		seen[key] = true
	}
	for _, pod := range set.Pods {
		note("pod", pod)
	}
	for _, obj := range set.Objects {
		note(KindOf(obj), obj)
	}
	return errors.Join(errs...)
}

// splitDocuments splits a manifest into documents. JSON documents follow each other directly. YAML documents are separated by lines of
// three dashes.
func splitDocuments(data []byte) ([]document, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("is larger than %d bytes", MaxSize)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !utf8.Valid(data) {
		return nil, errors.New("is not UTF-8 text")
	}
	if first := bytes.TrimLeft(data, " \t\r\n"); len(first) > 0 && first[0] == '{' {
		return splitJSON(data)
	}
	return splitYAML(data)
}
