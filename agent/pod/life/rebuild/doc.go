// Package rebuild rebuilds a lost store from the pods in the runtime. The hook Manifest writes the manifest of each pod
// into an annotation of its sandbox. Rebuild reads these manifests.
package rebuild
