// Package features answers what the runtime handler that a pod runs with can:
//
//	pod --RuntimeClass--> handler's name --CRI Status--> its features
//
// All that depends on it asks here: recursive read-only mounts (KEP-3857) and user
// namespaces (KEP-127).
package features
