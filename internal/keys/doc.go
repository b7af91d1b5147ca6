// Package keys holds the keys of annotations and labels: islet's own, and those of
// Kubernetes that no library exports. Each is written once; what k8s.io/api exports is
// taken from there.
package keys
