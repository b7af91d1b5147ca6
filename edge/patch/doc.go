// Package patch creates the strategic merge patches by which a node reports its own status and the
// statuses of its pods. A patch has only the changed fields.
//
//	status before, status now --JSON--> fields that differ --> {"status":{...}}
//
// The rules are the patchStrategy tags of k8s.io/api/core/v1. The package has the names of the few
// fields that matter, so that the program needs neither schemas nor reflection over types.
package patch
