// Package manifest decodes a manifest into pods and the objects that they use:
//
//	bytes -> documents -> strict JSON -> v1.Pod -> own rules -> defaults -> validation -> pods
//	 (YAML or JSON,        (unknown and           (static pods:   (those of the API server)
//	  Lists)                duplicate fields)      name, UID)
//
// It rejects all that an API server, and for static pods a kubelet, would reject, and names the
// origin and the path of the field. The package has no I/O, no clock and no state.
package manifest
