// Package manifest decodes a manifest into pods and the objects that they use:
//
//	bytes -> documents -> strict JSON -> v1.Pod -> own rules -> defaults -> validation -> pods
//	 (YAML or JSON,        (unknown and           (static pods:   (those of the API server)
//	  Lists)                duplicate fields)      name, UID)
//
// Package manifest rejects every manifest that an API server would reject, and every static pod that a kubelet would reject. The error
// contains the origin and the path of the field. The package does no I/O, reads no clock and has no state.
package manifest
