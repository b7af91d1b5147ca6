// Package access says who may ask the kubelet API of this node what: it stands
// before the handlers of port 10250.
//
//	request --> who: client certificate | bearer token | anonymous --> 401
//	        --> what: verb and subresource of this node, one or two --> 403
//	        --> handler
//
// Certificates are verified here, per request, against a file of authorities
// that is read anew when it changes; tokens and permissions are what a
// TokenAuthenticator and an Authorizer say. The rules are those of
// https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/
package access
