// Package realtime reads the real-time annotations of a pod. If the node allows them, it adds the settings to the configurations of the
// pod's containers.
//
//	pod --Container--> realtime.Check --> Refusal, or annotations of the container's configuration --> runtime
//
// Admission has already checked the annotations. This package checks them again before each start of a container,
// because the API server accepts changed annotations of a running pod.
package realtime
