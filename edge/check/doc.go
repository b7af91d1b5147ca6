// Package check finds the problems of manifests and configurations before they are used, without a node:
//
//	files --> Places (objects with lines) ---.
//	   |                                     v
//	   +--> manifest.Decode --> pods --> rules of one pod ------.
//	   |         '-- errors             rules of all pods       |
//	   +--> config.Check                  ^                     v
//	             '-- errors, notices      |             finding.Report
//	                                finding.Node
//
// The rules of package manifest and package config decide whether a file is valid. The rules of this package concern valid pods that
// cannot run, or not as intended: image references, quantities, host ports, missing objects, templates that were not filled in. With the
// facts of a Node, which islet apply --dry-run has, they also consider its pods, objects and images.
//
// The package does no I/O. The number of findings is limited.
package check
