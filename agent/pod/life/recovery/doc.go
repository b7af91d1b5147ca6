// Package recovery fills a store that was lost from the pods that run. The hook Manifest writes the manifest of each pod
// into its sandbox, and Rebuild reads the manifests back.
package recovery
