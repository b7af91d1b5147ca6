package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Apply creates the objects of a manifest, in their order. It sends the requests itself, because a run of kubectl needs 200 ms of CPU time.
// If an object exists already, kubectl apply takes this object and the following ones.
func (c *Cluster) Apply(t testing.TB, manifest string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), machine.WaitTimeout)
	defer cancel()
	documents, err := split(manifest)
	for i := 0; i < len(documents) && err == nil; i++ {
		if err = c.create(ctx, documents[i]); apierrors.IsAlreadyExists(err) {
			var out string
			if out, err = c.TryKubectl(string(bytes.Join(documents[i:], []byte("\n---\n"))), "apply", "-f", "-"); err != nil {
				err = fmt.Errorf("%w\n%s", err, out)
			}
			break
		}
	}
	if err != nil {
		t.Fatalf("apply: %v\n%s", err, manifest)
	}
}

// split returns the documents of a manifest that are not empty.
func split(manifest string) (documents [][]byte, _ error) {
	reader := yamlstream.NewYAMLReader(bufio.NewReader(strings.NewReader(manifest)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(document)) > 0 {
			documents = append(documents, document)
		}
	}
}

// create creates the object of a YAML document.
func (c *Cluster) create(ctx context.Context, document []byte) error {
	var o metav1.PartialObjectMetadata
	text, err := yaml.YAMLToJSONStrict(document)
	if err == nil {
		err = yaml.Unmarshal(text, &o)
	}
	if err != nil {
		return err
	}
	place, err := c.place(o.GroupVersionKind(), o.Namespace)
	if err != nil {
		return err
	}
	return c.admin.CoreV1().RESTClient().Post().AbsPath(place).Param("fieldValidation", metav1.FieldValidationStrict).
		SetHeader("Content-Type", "application/json").Body(text).Do(ctx).Error()
}

// place returns the path of the objects of a kind in a namespace.
func (c *Cluster) place(kind schema.GroupVersionKind, namespace string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	version := kind.GroupVersion().String()
	list := c.kinds[version]
	if list == nil {
		var err error
		if list, err = c.admin.Discovery().ServerResourcesForGroupVersion(version); err != nil {
			return "", err
		}
		if c.kinds == nil {
			c.kinds = map[string]*metav1.APIResourceList{}
		}
		c.kinds[version] = list
	}
	i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool {
		return r.Kind == kind.Kind && !strings.Contains(r.Name, "/") // the name of a subresource contains a slash
	})
	if i < 0 {
		return "", fmt.Errorf("the API server has no %s", kind)
	}
	top := "/apis"
	if kind.Group == "" {
		top = "/api"
	}
	if !list.APIResources[i].Namespaced {
		return path.Join(top, version, list.APIResources[i].Name), nil
	}
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return path.Join(top, version, "namespaces", namespace, list.APIResources[i].Name), nil
}

// Raw returns the response of the API server to a request for a path, like kubectl get --raw.
func (c *Cluster) Raw(t testing.TB, uri string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), machine.WaitTimeout)
	defer cancel()
	b, err := c.admin.CoreV1().RESTClient().Get().RequestURI(uri).SetHeader("Accept", "application/json, */*").DoRaw(ctx)
	return string(b), err
}

// Events returns a line with the reason and the message of each event in a namespace that a field selector selects. Tests that wait for an
// event call it repeatedly.
func (c *Cluster) Events(t testing.TB, namespace, selector string) string {
	t.Helper()
	list, err := c.admin.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		t.Logf("list events: %v", err) // the API server may be starting
		return ""
	}
	var lines strings.Builder
	for _, e := range list.Items {
		fmt.Fprintf(&lines, "%s: %s\n", e.Reason, e.Message)
	}
	return lines.String()
}
