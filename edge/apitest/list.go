package apitest

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// A page contains the part of a paged list that was not sent yet, and the resource version of the first page.
type page struct {
	version int64
	items   []runtime.Object
}

// list returns the objects that a request selects. If the request has a limit, list returns at most limit objects and a continue token.
// See https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks.
func (s *Server) list(r *http.Request, k key) (runtime.Object, error) {
	rest := page{version: s.version}
	if token := r.URL.Query().Get("continue"); token != "" {
		var found bool
		if rest, found = s.pages[token]; !found {
			return nil, apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result.")
		}
	} else {
		rest.items = s.selectObjects(r, k)
	}
	list := listOf(k.resource)
	m := list.(metav1.ListInterface)
	m.SetResourceVersion(strconv.FormatInt(rest.version, 10))
	if limit, _ := strconv.Atoi(r.URL.Query().Get("limit")); limit > 0 && len(rest.items) > limit {
		token := fmt.Sprintf("page-%d", len(s.pages)+1)
		s.pages[token] = page{rest.version, rest.items[limit:]}
		m.SetContinue(token)
		rest.items = rest.items[:limit]
	}
	return list, meta.SetList(list, rest.items)
}

// selectObjects returns copies of the objects that a request selects, sorted by namespace and name.
func (s *Server) selectObjects(r *http.Request, k key) (items []runtime.Object) {
	var keys []key
	for at := range s.index[topicOf(r, k.resource)] {
		if belongsTo(at, k) {
			keys = append(keys, at)
		}
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	for _, at := range keys {
		items = append(items, s.objects[at].DeepCopyObject())
	}
	return items
}
