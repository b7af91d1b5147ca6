// Package manifest decodes a manifest into pods and the objects that they use:
//
//	bytes -> documents -> strict JSON -> v1.Pod -> own rules -> defaults -> validation -> pods
//	 (YAML or JSON,        (unknown and           (static pods:   (those of the API server)
//	  Lists)                duplicate fields)      name, UID)
//
// It rejects everything that an API server would reject, and for static pods also what a kubelet would
// reject. The error contains the origin and the path of the field. The package does no I/O and has no clock
// and no state.
package manifest
