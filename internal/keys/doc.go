// Package keys defines the keys of annotations and labels: islet's own keys, and keys of Kubernetes
// that no library exports. For the keys that k8s.io/api exports, use its constants.
package keys
