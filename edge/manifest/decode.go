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

// MaxSize is the largest manifest that is looked at, in bytes: what an API
// server takes as one request.
const MaxSize = 3 << 20

// Options say where a manifest comes from and what it may hold.
type Options struct {
	// Origin is the file or URL, for error messages and for the UID.
	Origin string
	// Source is a value of keys.ConfigSource.
	Source string
	// NodeName is the node the pods will run on.
	NodeName string
	// Seen is when the manifest was first seen, for the annotation
	// kubernetes.io/config.seen, which is left out when it is zero. It is no
	// part of the UID.
	Seen time.Time
	// Lists permits Lists and PodLists. Without it each document must be a Pod, as
	// in a kubelet's manifest directory, where this one differs only in that a file
	// may hold several documents.
	Lists bool
}

// Decode reads the pods of a manifest. Any error fails the whole manifest, so
// that a caller never takes a pod for removed that is only misspelt; it is one
// *Error or several, joined (see All). A manifest without any document yields
// no pod and no error.
func Decode(data []byte, o Options) ([]*v1.Pod, error) {
	at := place{origin: o.Origin}
	docs, err := documents(data)
	if err != nil {
		return nil, at.fail("", "%v", err)
	}
	var pods []*v1.Pod
	var errs []error
	objects := 0
	for i, doc := range docs {
		if len(docs) > 1 {
			at.pod = fmt.Sprintf("document %d", i+1)
		}
		raw, err := doc.read(&objects)
		if err != nil {
			errs = append(errs, at.fail("", "%v", err))
			continue
		}
		found, err := decodeDocument(raw, at, o)
		pods = append(pods, found...)
		errs = append(errs, err)
	}
	errs = append(errs, duplicates(pods, o))
	if err := errors.Join(errs...); err != nil {
		return nil, bounded(err)
	}
	return pods, nil
}

func decodeDocument(raw []byte, at place, o Options) ([]*v1.Pod, error) {
	meta, err := typeOf(raw, at)
	if err != nil {
		return nil, err
	}
	if meta.Kind != "List" && meta.Kind != "PodList" {
		pod, err := decodePod(raw, meta, at, o)
		if err != nil {
			return nil, err
		}
		return []*v1.Pod{pod}, nil
	}
	if !o.Lists {
		return nil, at.fail("kind", "Unsupported value: %q: only Pods are allowed here; several of them are separated by lines of ---", meta.Kind)
	}
	if meta.APIVersion != "v1" {
		return nil, at.fail("apiVersion", "Unsupported value: %q: a %s is v1", meta.APIVersion, meta.Kind)
	}
	return decodeList(raw, at, o)
}

// typeOf reads what kind of object raw is, without looking at the rest.
func typeOf(raw []byte, at place) (metav1.TypeMeta, error) {
	var meta *metav1.TypeMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &meta); err != nil || meta == nil {
		return metav1.TypeMeta{}, at.fail("", "is not a Kubernetes object with apiVersion and kind")
	}
	return *meta, nil
}

// list is a PodList or a List: its items are decoded one by one, so that each
// error names its item.
type list struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []json.RawMessage `json:"items"`
}

func decodeList(raw []byte, at place, o Options) ([]*v1.Pod, error) {
	var l list
	if err := strict(raw, &l, at); err != nil {
		return nil, err
	}
	var pods []*v1.Pod
	var errs []error
	for i, raw := range l.Items {
		item := at
		item.pod = strings.TrimPrefix(fmt.Sprintf("%s, items[%d]", at.pod, i), ", ")
		meta, err := typeOf(raw, item)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if l.Kind == "PodList" && meta == (metav1.TypeMeta{}) { // typed lists need not repeat it
			meta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		}
		pod, err := decodePod(raw, meta, item, o)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		pods = append(pods, pod)
	}
	return pods, errors.Join(errs...)
}

func decodePod(raw []byte, meta metav1.TypeMeta, at place, o Options) (*v1.Pod, error) {
	switch {
	case meta.Kind == "":
		return nil, at.fail("kind", "Required value: this must be a Pod")
	case meta.APIVersion == "":
		return nil, at.fail("apiVersion", "Required value: a Pod is v1")
	case meta.Kind != "Pod":
		return nil, at.fail("kind", "Unsupported value: %q: only Pods run from manifests", meta.Kind)
	case meta.APIVersion != "v1":
		return nil, at.fail("apiVersion", "Unsupported value: %q: a Pod is v1", meta.APIVersion)
	}
	pod := &v1.Pod{}
	if err := strict(raw, pod, at); err != nil {
		return nil, err
	}
	pod.TypeMeta = meta
	if pod.Name == "" {
		return nil, at.fail("metadata.name", "Required value")
	}
	at.pod = strings.TrimPrefix(fmt.Sprintf("%s, pod %q", at.pod, plain(pod.Name)), ", ")
	Default(pod)
	errs := references(pod, o.Source)
	if err := own(pod, raw, o); err != nil {
		return nil, at.fail("", "%v", err)
	}
	if errs = append(errs, Validate(pod)...); len(errs) > 0 {
		return nil, at.failAll(errs)
	}
	return pod, nil
}

// duplicates names the pods that are there twice.
func duplicates(pods []*v1.Pod, o Options) error {
	seen := make(map[[2]string]bool, len(pods))
	var errs []error
	for _, pod := range pods {
		key := [2]string{pod.Namespace, pod.Name}
		if seen[key] {
			at := place{o.Origin, fmt.Sprintf("pod %q", pod.Name)}
			errs = append(errs, at.fail("metadata.name", "Duplicate value: namespace %q has this pod twice", pod.Namespace))
		}
		seen[key] = true
	}
	return errors.Join(errs...)
}

// documents splits the input. JSON is one document or several, one after the
// other; YAML documents are separated by lines of three dashes.
func documents(data []byte) ([]document, error) {
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
