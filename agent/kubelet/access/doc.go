// Package access authenticates and authorizes requests to the kubelet API. It wraps the handlers of
// port 10250.
//
//	request --> who: client certificate | bearer token | anonymous --> 401
//	        --> what: verb and subresource of this node, one or two --> 403
//	        --> handler
//
// A client certificate is verified for each request, against a CA file that is read again when it changes.
// A TokenAuthenticator verifies tokens, and an Authorizer checks permissions. The rules are those of
// https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/
package access
