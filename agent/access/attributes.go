package access

import (
	"net/http"
	"strings"
)

// attributes says which verb a request is and which subresources of the node,
// any of which allows it. The finer ones come first; proxy is the one for
// everything that has none of its own.
// https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/#fine-grained-authorization
func attributes(r *http.Request) (verb string, subresources []string) {
	switch r.Method {
	case http.MethodPost:
		verb = "create"
	case http.MethodGet:
		verb = "get"
	case http.MethodPut:
		verb = "update"
	case http.MethodPatch:
		verb = "patch"
	case http.MethodDelete:
		verb = "delete"
	}
	root, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if !strings.HasPrefix(r.URL.Path, "/") {
		root = ""
	}
	switch root {
	case "pods", "healthz", "configz":
		return verb, []string{root, "proxy"}
	case "runningpods":
		return verb, []string{"pods", "proxy"}
	case "stats", "metrics", "checkpoint", "statusz":
		return verb, []string{root}
	case "logs":
		return verb, []string{"log"}
	case "flagz":
		return verb, []string{"configz"}
	}
	return verb, []string{"proxy"}
}
