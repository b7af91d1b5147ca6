// Package check finds problems of manifests and configurations. It needs no node, so the files can be checked before a node uses them:
//
//	files --> Places (objects with lines) ---.
//	   |                                     v
//	   +--> manifest.Decode --> pods --> rules of one pod ------.
//	   |         '-- errors             rules of all pods       |
//	   +--> config.Check                  ^                     v
//	             '-- errors, notices      |             finding.Report
//	                                finding.Node
//
// The rules of package manifest and package config decide whether a file is valid. The rules of this package find valid pods that cannot
// run, or that would not run as intended. They check image references, quantities, host ports, references to objects, and templates that
// were not filled in. The command islet apply --dry-run passes the facts of a Node. With these facts, the rules also consider the pods,
// objects and images of the node.
//
// The package does no I/O. The number of findings is limited.
package check
