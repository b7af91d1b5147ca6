package kube

import (
	"encoding/json"
	"errors"
	"slices"
	"sort"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/keys"
)

// Every user who may create pods or Services in one namespace can create some that are too large for the node. A node reads them together
// with the objects of all other users. The client therefore reduces such an object instead of returning an error. The reduced object has
// its name, UID, resource version, the times of its creation and deletion, and the annotation keys.TooLarge. A reduced pod also has its
// status. If the status is too large, too, the pod has only the fields of the status that decide whether and how it has ended. A reduced
// Service also has its spec, unless the spec is too large, too.
const (
	// maxItem is the maximum memory of an item of a page that is too large. Heavier items are reduced. The smallest regular page without
	// such items uses less than maxDecoded.
	maxItem = maxDecoded / (smallestPage + 1)
	// maxKept is the maximum memory of the status or spec of a reduced object.
	maxKept = 256 << 10
	// maxOutline is the maximum length of a field that is kept although the status is too large.
	maxOutline = 4 << 10
	// listTarget is the memory of a list that was larger than maxListed, after its heaviest items were reduced.
	listTarget = maxListed / 4 * 3
)

// A reducer reduces encoded objects of one kind.
type reducer struct {
	object  runtime.Object     // an empty object
	part    any                // an empty kept part
	kept    protowire.Number   // the field of the kept part
	outline []protowire.Number // the fields of the kept part that remain if that part is too large
}

// reducerOf returns the reducer for objects of a kind, and whether the kind is a list of these objects. The reducer is nil if objects of
// this kind must not be reduced. An incomplete ConfigMap, for example, must not be used.
func reducerOf(kind schema.GroupVersionKind) (r *reducer, isList bool) {
	if kind.Group != corev1.GroupName || kind.Version != "v1" {
		return nil, false
	}
	switch kind.Kind {
	case "Pod", "PodList":
		r = &reducer{&corev1.Pod{}, &corev1.PodStatus{}, statusField, statusOutline}
	case "Service", "ServiceList":
		r = &reducer{&corev1.Service{}, &corev1.ServiceSpec{}, specField, nil}
	}
	return r, strings.HasSuffix(kind.Kind, "List")
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
	specField        = 2 // of a pod and of a Service
	statusField      = 3
	itemsField       = 2 // of each list
	annotationsField = 12
	selfLinkField    = 4
	lastScalarField  = 10 // name, generateName, namespace, selfLink, uid, resourceVersion, generation, three times of creation and deletion
)

// statusOutline contains the fields phase, message, reason, startTime and qosClass of a pod's status. The API server rejects a status with
// another QoS class, so the node must know the class.
var statusOutline = []protowire.Number{1, 3, 4, 7, 9}

// reducePart returns the outline of a kept part that is too large.
func (r *reducer) reducePart(part []byte) (outline []byte) {
	_ = visitAllFields(part, func(n protowire.Number, _, whole []byte) {
		if slices.Contains(r.outline, n) && len(whole) <= maxOutline {
			outline = append(outline, whole...)
		}
	})
	return outline
}

// reduceProtobuf returns a reduced object, or nil if the bytes are not valid.
func (r *reducer) reduceProtobuf(object []byte) (reduced []byte) {
	var metadata, short []byte
	err := visitAllFields(object, func(n protowire.Number, value, whole []byte) {
		switch {
		case n == metadataField:
			metadata = append(metadata, value...) // the decoder merges repeated messages in the same way
		case n == r.kept && inputweight.Protobuf(value, r.part, maxKept) == nil:
			reduced = append(reduced, whole...)
		case n == r.kept:
			reduced = appendField(reduced, n, r.reducePart(value))
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

// isMirrorAnnotation reports whether an entry of a map is the annotation of mirror pods.
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
	return r.reduceJSON(data)
}

// jsonObject is the part of an object that a reduced object may have.
type jsonObject struct {
	APIVersion string          `json:"apiVersion,omitempty"`
	Kind       string          `json:"kind,omitempty"`
	Metadata   jsonMetadata    `json:"metadata"`
	Spec       json.RawMessage `json:"spec,omitempty"`
	Status     json.RawMessage `json:"status,omitempty"`
}

type jsonMetadata struct {
	Name              string            `json:"name,omitempty"`
	GenerateName      string            `json:"generateName,omitempty"`
	Namespace         string            `json:"namespace,omitempty"`
	UID               string            `json:"uid,omitempty"`
	ResourceVersion   string            `json:"resourceVersion,omitempty"`
	Generation        json.RawMessage   `json:"generation,omitempty"`
	CreationTimestamp json.RawMessage   `json:"creationTimestamp,omitempty"`
	DeletionTimestamp json.RawMessage   `json:"deletionTimestamp,omitempty"`
	DeletionGrace     json.RawMessage   `json:"deletionGracePeriodSeconds,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
}

// jsonList is a list of encoded objects.
type jsonList struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   json.RawMessage   `json:"metadata"`
	Items      []json.RawMessage `json:"items"`
}

// reduceJSONItems is like reduceProtobufItems.
func (r *reducer) reduceJSONItems(data []byte) []byte {
	var list jsonList
	if !decodeBounded(data, &list) {
		return nil
	}
	found := false
	for i, item := range list.Items {
		if isTooHeavy(inputweight.JSON(item, r.object, maxItem)) {
			if item := r.reduceJSON(item); item != nil {
				list.Items[i], found = item, true
			}
		}
	}
	if !found {
		return nil
	}
	return encode(list)
}

// reduceJSON is like reduceProtobuf.
func (r *reducer) reduceJSON(data []byte) []byte {
	var o jsonObject
	if !decodeBounded(data, &o) {
		return nil
	}
	o.Metadata.Annotations = reducedAnnotations(o.Metadata.Annotations)
	kept, dropped := &o.Spec, &o.Status
	if r.kept == statusField {
		kept, dropped = dropped, kept
	}
	*dropped = nil
	if inputweight.JSON(*kept, r.part, maxKept) != nil {
		*kept = r.reduceJSONPart(*kept)
	}
	return encode(o)
}

// reduceJSONPart is like reducePart.
func (r *reducer) reduceJSONPart(part []byte) json.RawMessage {
	var outline struct {
		Phase     json.RawMessage `json:"phase,omitempty"`
		Message   json.RawMessage `json:"message,omitempty"`
		Reason    json.RawMessage `json:"reason,omitempty"`
		StartTime json.RawMessage `json:"startTime,omitempty"`
		QOSClass  json.RawMessage `json:"qosClass,omitempty"`
	}
	if r.outline == nil || !decodeBounded(part, &outline) {
		return nil
	}
	for _, field := range []*json.RawMessage{&outline.Phase, &outline.Message, &outline.Reason, &outline.StartTime, &outline.QOSClass} {
		if len(*field) > maxOutline {
			*field = nil
		}
	}
	return encode(outline)
}

// decodeBounded decodes a JSON value. It returns false if the value is invalid or would use more than maxDecoded bytes.
func decodeBounded(data []byte, into any) bool {
	return inputweight.JSON(data, into, maxDecoded) == nil && json.Unmarshal(data, into) == nil
}

// encode returns the JSON of an object whose parts are valid JSON, or nil.
func encode(object any) []byte {
	data, _ := json.Marshal(object)
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
	sort.Slice(list, func(i, j int) bool { // slices.SortFunc would add 20 KB to the program
		a, b := &list[i], &list[j]
		return a.ended && !b.ended || a.ended == b.ended && a.bytes > b.bytes
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
		reduceMetadata(&o.ObjectMeta)
		o.Spec = corev1.PodSpec{}
		if s := &o.Status; inputweight.SizeOf(s) > maxKept {
			if len(s.Message) > maxOutline {
				s.Message = ""
			}
			if len(s.Reason) > maxOutline {
				s.Reason = ""
			}
			*s = corev1.PodStatus{Phase: s.Phase, Message: s.Message, Reason: s.Reason, StartTime: s.StartTime, QOSClass: s.QOSClass}
		}
	case *corev1.Service:
		reduceMetadata(&o.ObjectMeta)
		o.Status = corev1.ServiceStatus{}
		if inputweight.SizeOf(&o.Spec) > maxKept {
			o.Spec = corev1.ServiceSpec{}
		}
	default:
		return false
	}
	return true
}

func reduceMetadata(m *metav1.ObjectMeta) {
	m.Annotations = reducedAnnotations(m.Annotations)
	m.SelfLink, m.Labels, m.OwnerReferences, m.Finalizers, m.ManagedFields = "", nil, nil, nil, nil
}

// reducedAnnotations returns the annotations of a reduced object. The annotation of mirror pods distinguishes them from other pods.
func reducedAnnotations(all map[string]string) map[string]string {
	reduced := map[string]string{keys.TooLarge: ""}
	if hash, mirror := all[corev1.MirrorPodAnnotationKey]; mirror {
		reduced[corev1.MirrorPodAnnotationKey] = hash
	}
	return reduced
}
