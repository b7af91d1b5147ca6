// Package keys defines the keys of annotations and labels: islet's own, and those of Kubernetes
// that no library exports. Keys that k8s.io/api exports are used from there.
package keys
