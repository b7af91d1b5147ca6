package kube

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/sorting"
)

// Every user who may create pods or Services in one namespace can create some that are too large for the node. A node reads them together
// with the objects of all other users. The client therefore reduces such an object instead of returning an error. The reduced object has
// its name, UID, resource version, the times of its creation and deletion, and the annotation keys.TooLarge. A reduced pod also has its
// status, and a reduced Service its spec, unless that part is too large, too.
const (
	// maxItem is the maximum memory of an item of a page that is too large. Heavier items are reduced. The smallest regular page without
	// such items uses less than maxDecoded.
	maxItem = maxDecoded / (smallestPage + 1)
	// maxKept is the maximum memory of the status or spec of a reduced object.
	maxKept = 256 << 10
	// listTarget is the memory of a list that was larger than maxListed, after its heaviest items were reduced.
	listTarget = maxListed / 4 * 3
)

// A reducer reduces encoded objects of one kind.
type reducer struct {
	object   runtime.Object   // an empty object
	part     any              // an empty kept part
	kept     protowire.Number // the field of the kept part, in protobuf and in JSON
	keptName string
}

// reducerOf returns the reducer for objects of a kind, and whether the kind is a list of these objects. The reducer is nil if objects of
// this kind must not be reduced. An incomplete ConfigMap, for example, must not be used.
func reducerOf(kind schema.GroupVersionKind) (r *reducer, isList bool) {
	switch kind {
	case corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithKind("PodList"):
		r = &reducer{&corev1.Pod{}, &corev1.PodStatus{}, 3, "status"}
	case corev1.SchemeGroupVersion.WithKind("Service"), corev1.SchemeGroupVersion.WithKind("ServiceList"):
		r = &reducer{&corev1.Service{}, &corev1.ServiceSpec{}, 2, "spec"}
	}
	return r, kind.Kind == "PodList" || kind.Kind == "ServiceList"
}

// reduceEnvelope returns the runtime.Unknown of a reduced object with its prefix, and the object itself. It returns nil if it cannot reduce
// the object.
func reduceEnvelope(kind schema.GroupVersionKind, objects [][]byte) (data []byte, reduced [][]byte) {
	r, isList := reducerOf(kind)
	if r == nil || len(objects) != 1 {
		return nil, nil
	}
	var object []byte
	if isList {
		object = r.reduceProtobufItems(objects[0])
	} else {
		object = r.reduceProtobuf(objects[0])
	}
	if object == nil {
		return nil, nil
	}
	typeMeta := appendField(appendField(nil, 1, []byte(kind.GroupVersion().String())), 2, []byte(kind.Kind))
	return appendField(appendField(slices.Clone(protobufPrefix), 1, typeMeta), 2, object), [][]byte{object}
}

// reduceProtobufItems reduces the items of a list that are too large. It returns nil if no item is too large, or if the list is not valid.
func (r *reducer) reduceProtobufItems(list []byte) (reduced []byte) {
	at, copied := 0, 0 // positions in the list
	err := visitAllFields(list, func(n protowire.Number, value, whole []byte) {
		if n == itemsField && value != nil && isTooHeavy(inputweight.Protobuf(value, r.object, maxItem)) {
			if item := r.reduceProtobuf(value); item != nil {
				reduced = appendField(append(reduced, list[copied:at]...), itemsField, item)
				copied = at + len(whole)
			}
		}
		at += len(whole)
	})
	if err != nil || reduced == nil {
		return nil
	}
	return append(reduced, list[copied:]...)
}

// The numbers of fields in protobuf.
const (
	metadataField    = 1 // of each object
	itemsField       = 2 // of each list
	annotationsField = 12
	selfLinkField    = 4
	lastScalarField  = 10 // name, generateName, namespace, selfLink, uid, resourceVersion, generation, three times of creation and deletion
)

// reduceProtobuf returns a reduced object, or nil if the bytes are not valid.
func (r *reducer) reduceProtobuf(object []byte) (reduced []byte) {
	var metadata, short []byte
	err := visitAllFields(object, func(n protowire.Number, value, whole []byte) {
		switch {
		case n == metadataField:
			metadata = append(metadata, value...) // the decoder merges repeated messages in the same way
		case n == r.kept && inputweight.Protobuf(value, r.part, maxKept) == nil:
			reduced = append(reduced, whole...)
		}
	})
	if err == nil {
		err = visitAllFields(metadata, func(n protowire.Number, value, whole []byte) {
			if n <= lastScalarField && n != selfLinkField || n == annotationsField && isMirrorAnnotation(value) {
				short = append(short, whole...)
			}
		})
	}
	if err != nil {
		return nil
	}
	short = appendField(short, annotationsField, appendField(nil, 1, []byte(keys.TooLarge)))
	return appendField(reduced, metadataField, short)
}

// isMirrorAnnotation reports whether an entry of a map is the annotation of mirror pods, which distinguishes them from other pods.
func isMirrorAnnotation(entry []byte) (found bool) {
	_ = visitFields(entry, func(n protowire.Number, value []byte) {
		found = found || n == 1 && string(value) == corev1.MirrorPodAnnotationKey
	})
	return found
}

func appendField(message []byte, n protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(message, n, protowire.BytesType), value)
}

// reduceJSON reduces an object, or the items of a list that are too large. It returns nil if it cannot reduce the object.
func reduceJSON(kind schema.GroupVersionKind, data []byte) []byte {
	r, isList := reducerOf(kind)
	switch {
	case r == nil:
		return nil
	case isList:
		return r.reduceJSONItems(data)
	}
	return r.reduceJSON(kind, data)
}

type jsonFields = map[string]json.RawMessage

// reduceJSONItems is like reduceProtobufItems.
func (r *reducer) reduceJSONItems(data []byte) []byte {
	list, ok := decodeBounded[jsonFields](data)
	items, valid := decodeBounded[[]json.RawMessage](list["items"])
	if !ok || !valid {
		return nil
	}
	found := false
	for i, item := range items {
		if isTooHeavy(inputweight.JSON(item, r.object, maxItem)) {
			if item := r.reduceJSON(schema.GroupVersionKind{}, item); item != nil {
				items[i], found = item, true
			}
		}
	}
	if !found {
		return nil
	}
	list["items"] = encode(items)
	return encode(list)
}

// reduceJSON is like reduceProtobuf. The kind is empty for an item of a list.
func (r *reducer) reduceJSON(kind schema.GroupVersionKind, data []byte) []byte {
	object, ok := decodeBounded[jsonFields](data)
	metadata, valid := decodeBounded[jsonFields](object["metadata"])
	if !ok || !valid {
		return nil
	}
	annotations := jsonFields{keys.TooLarge: encode("")}
	if all, ok := decodeBounded[jsonFields](metadata["annotations"]); ok && all[corev1.MirrorPodAnnotationKey] != nil {
		annotations[corev1.MirrorPodAnnotationKey] = all[corev1.MirrorPodAnnotationKey]
	}
	short := jsonFields{"annotations": encode(annotations)}
	for _, name := range []string{"name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
		"deletionTimestamp", "deletionGracePeriodSeconds"} {
		if value, ok := metadata[name]; ok {
			short[name] = value
		}
	}
	reduced := jsonFields{"metadata": encode(short)}
	if !kind.Empty() {
		reduced["apiVersion"], reduced["kind"] = encode(kind.GroupVersion().String()), encode(kind.Kind)
	}
	if kept := object[r.keptName]; kept != nil && inputweight.JSON(kept, r.part, maxKept) == nil {
		reduced[r.keptName] = kept
	}
	return encode(reduced)
}

// decodeBounded decodes a JSON value. It returns false if the value is invalid or would use more than maxDecoded bytes.
func decodeBounded[T jsonFields | []json.RawMessage](data []byte) (value T, ok bool) {
	err := inputweight.JSON(data, &value, maxDecoded)
	return value, err == nil && json.Unmarshal(data, &value) == nil
}

// encode returns the JSON of a string, or of parts that are already encoded. Both are always valid.
func encode(value any) json.RawMessage {
	data, _ := json.Marshal(value)
	return data
}

func isTooHeavy(err error) bool { return errors.Is(err, inputweight.ErrTooHeavy) }

// reduceHeaviest reduces items of a decoded list until they use at most listTarget bytes. It reduces ended pods first, because the node
// does not run them, and then the heaviest items. It returns the memory of all items, which is larger than the limit if the items cannot
// be reduced.
func reduceHeaviest(items []runtime.Object) (memory int64) {
	type weighed struct {
		object runtime.Object
		bytes  int64
		ended  bool
	}
	list := make([]weighed, 0, len(items))
	for _, item := range items {
		p, isPod := item.(*corev1.Pod)
		ended := isPod && (p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed)
		list = append(list, weighed{item, inputweight.SizeOf(item), ended})
		memory += list[len(list)-1].bytes
	}
	sorting.By(list, func(a, b weighed) int {
		switch {
		case a.ended == b.ended:
			return cmp.Compare(b.bytes, a.bytes)
		case a.ended:
			return -1
		}
		return 1
	})
	for _, item := range list {
		if memory <= listTarget {
			break
		}
		if reduceObject(item.object) {
			memory += inputweight.SizeOf(item.object) - item.bytes
		}
	}
	return memory
}

// reduceObject reduces a decoded object in place. It returns false if objects of this type must not be reduced.
func reduceObject(object runtime.Object) bool {
	switch o := object.(type) {
	case *corev1.Pod:
		reduced := corev1.Pod{ObjectMeta: reducedMetadata(&o.ObjectMeta)}
		if inputweight.SizeOf(&o.Status) <= maxKept {
			reduced.Status = o.Status
		}
		*o = reduced
	case *corev1.Service:
		reduced := corev1.Service{ObjectMeta: reducedMetadata(&o.ObjectMeta)}
		if inputweight.SizeOf(&o.Spec) <= maxKept {
			reduced.Spec = o.Spec
		}
		*o = reduced
	default:
		return false
	}
	return true
}

func reducedMetadata(m *metav1.ObjectMeta) metav1.ObjectMeta {
	reduced := metav1.ObjectMeta{
		Name: m.Name, GenerateName: m.GenerateName, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		Generation: m.Generation, CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds, Annotations: map[string]string{keys.TooLarge: ""},
	}
	if hash, mirror := m.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		reduced.Annotations[corev1.MirrorPodAnnotationKey] = hash
	}
	return reduced
}
