package access

import (
	"net/http"
	"strings"
)

// requestAttributes returns the verb of a request, and the node's subresources that the request concerns. The more specific
// subresource is the first. A permission for any of them allows the request. Paths without a subresource of their own
// have the subresource proxy.
//
// The verb for a session in a pod is create. This is also true for a WebSocket, although its handshake is a GET request.
// Otherwise the permission to read the node's API would include the permission to run commands. The API server applies
// the same rule to the subresources of pods (KEP-4006, AuthorizePodWebsocketUpgradeCreatePermission).
// https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/#fine-grained-authorization
func requestAttributes(r *http.Request) (verb string, subresources []string) {
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
	case "runningpods", "allocatedPods":
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
