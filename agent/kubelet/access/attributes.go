package access

import (
	"net/http"
	"strings"
)

// attributes says which verb a request is and which subresources of the node,
// any of which allows it. The finer ones come first; proxy is the one for
// everything that has none of its own. What opens a session in a pod is create,
// also as a WebSocket, which begins with GET: who may only read the node's API runs
// no commands by it. The API server asks the same for the subresources of pods
// (KEP-4006, AuthorizePodWebsocketUpgradeCreatePermission).
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
	case "exec", "attach", "portForward":
		if verb == "get" {
			verb = "create"
		}
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
