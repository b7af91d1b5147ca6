// Package manifest turns the bytes of a manifest into pods as a node runs them:
//
//	bytes -> documents -> strict JSON -> v1.Pod -> own rules -> defaults -> validation -> pods
//	 (YAML or JSON,        (unknown and           (static pods:   (as the API server has them)
//	  Lists)                duplicate fields)      name, UID)
//
// What an API server, and for static pods a kubelet, would refuse is refused
// here too, with the origin and the path of the field. The package is pure: no
// I/O, no clock, no state.
package manifest
