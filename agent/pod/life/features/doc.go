// Package features returns the features of the runtime handler that a pod runs with:
//
//	pod --RuntimeClass--> handler's name --CRI Status--> its features
//
// Recursive read-only mounts (KEP-3857) and user namespaces (KEP-127) depend on these features.
package features
