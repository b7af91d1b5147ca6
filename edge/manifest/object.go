package manifest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/islet-edge/islet/internal/keys"
)

// An Object is a ConfigMap, a Secret or a PersistentVolumeClaim. Pods of the same source can reference it by its namespace and name.
type Object interface {
	metav1.Object
	runtime.Object
	Marshal() ([]byte, error)
}

// A Set contains the pods and objects of a manifest, each in the order of the manifest.
type Set struct {
	Pods    []*v1.Pod
	Objects []Object
}

// IsEmpty reports whether the set has no pods and no objects.
func (s *Set) IsEmpty() bool { return len(s.Pods)+len(s.Objects) == 0 }

func (s *Set) add(other Set) {
	s.Pods = append(s.Pods, other.Pods...)
	s.Objects = append(s.Objects, other.Objects...)
}

// New returns an empty object of the given kind, or nil if manifests cannot define objects of that kind.
func New(kind string) Object {
	switch kind {
	case "ConfigMap":
		return &v1.ConfigMap{}
	case "Secret":
		return &v1.Secret{}
	case "PersistentVolumeClaim":
		return &v1.PersistentVolumeClaim{}
	}
	return nil
}

// KindOf returns the kind of an object.
func KindOf(o Object) string { return reflect.TypeOf(o).Elem().Name() }

// decodeObject decodes, defaults and validates one object.
func decodeObject(raw []byte, obj Object, at location) (Object, error) {
	if err := decodeStrict(raw, obj, at); err != nil {
		return nil, err
	}
	if obj.GetName() == "" {
		return nil, at.fail("metadata.name", "Required value")
	}
	kind := KindOf(obj)
	at.pod = strings.TrimPrefix(fmt.Sprintf("%s, %s %q", at.pod, kind, sanitize(obj.GetName())), ", ")
	resetMeta(obj)
	if errs := validateObject(obj); len(errs) > 0 {
		return nil, at.failAll(errs)
	}
	obj.GetObjectKind().SetGroupVersionKind(v1.SchemeGroupVersion.WithKind(kind))
	return obj, nil
}

// resetMeta removes metadata that only an API server sets. Manifests that were copied from kubectl's output contain it.
func resetMeta(obj Object) {
	meta := metav1.ObjectMeta{
		Name: obj.GetName(), Namespace: obj.GetNamespace(), Labels: obj.GetLabels(), Annotations: obj.GetAnnotations(),
	}
	if meta.Namespace == "" {
		meta.Namespace = metav1.NamespaceDefault
	}
	delete(meta.Annotations, v1.LastAppliedConfigAnnotation) // for a Secret, the annotation contains a copy of its data
	switch o := obj.(type) {
	case *v1.ConfigMap:
		o.ObjectMeta = meta
	case *v1.Secret:
		o.ObjectMeta = meta
		defaultSecret(o)
	case *v1.PersistentVolumeClaim:
		o.ObjectMeta = meta
		o.Status = v1.PersistentVolumeClaimStatus{}
		fill(&o.Spec.VolumeMode, v1.PersistentVolumeFilesystem)
	}
}

// defaultSecret sets the defaults of a Secret, as an API server does. See
// https://kubernetes.io/docs/concepts/configuration/secret/#restriction-names-data.
func defaultSecret(s *v1.Secret) {
	fillZero(&s.Type, v1.SecretTypeOpaque)
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for k, v := range s.StringData {
		s.Data[k] = []byte(v)
	}
	s.StringData = nil
}

// unsupportedKind returns the error for an unsupported kind. For controllers it suggests a replacement.
func unsupportedKind(kind string, raw []byte, at location) error {
	const only = "only Pods, ConfigMaps, Secrets and PersistentVolumeClaims come from manifests"
	if !slices.Contains([]string{"Deployment", "DaemonSet", "StatefulSet", "ReplicaSet", "ReplicationController", "Job", "CronJob"}, kind) {
		return at.fail("kind", "Unsupported value: %q: %s", kind, only)
	}
	return at.fail("kind", "Unsupported value: %q: %s; %s", kind, only, asPod(kind, raw))
}

// A workload is the part of a controller's manifest that asPod reads.
type workload struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		Replicas             *int64 `json:"replicas"`
		Completions          *int64 `json:"completions"`
		VolumeClaimTemplates []struct {
			Metadata meta `json:"metadata"`
		} `json:"volumeClaimTemplates"`
	} `json:"spec"`
}

type meta struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// asPod returns one line that advises how to rewrite the manifest of a controller as the manifest of a pod.
func asPod(kind string, raw []byte) string {
	var w workload
	_ = decodeLenient(raw, &w) // invalid parts are omitted
	name, template := w.Metadata.Name, "spec.template"
	if name == "" {
		name = "NAME"
	}
	if kind == "CronJob" {
		template = "spec.jobTemplate.spec.template"
	}
	if kind == "StatefulSet" {
		name += "-0"
	}
	meta := "name: " + name
	if w.Metadata.Namespace != "" {
		meta += ", namespace: " + w.Metadata.Namespace
	}
	text := fmt.Sprintf("write it as 'apiVersion: v1, kind: Pod, metadata: {%s}', with metadata.labels and spec of its %s", meta, template)
	copies := int64(1)
	for _, n := range []*int64{w.Spec.Replicas, w.Spec.Completions} {
		if n != nil {
			copies = *n
		}
	}
	switch {
	case kind == "CronJob":
		text += "; a node has no schedule"
	case copies > 1:
		text += fmt.Sprintf("; write each of the %d copies as a pod with its own name", copies)
	}
	for _, t := range w.Spec.VolumeClaimTemplates {
		claim := t.Metadata.Name + "-" + name
		const form = "; its claim as a PersistentVolumeClaim %s, and in spec.volumes '{name: %s, persistentVolumeClaim: {claimName: %s}}'"
		text += fmt.Sprintf(form, claim, t.Metadata.Name, claim)
	}
	return text
}

// isStatic reports whether the pods of a source are static pods.
func isStatic(source string) bool { return source != keys.SourceAPI }
