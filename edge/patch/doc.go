// Package patch creates strategic merge patches. A node uses them to report its own status and the statuses of its pods. A patch contains
// only the changed fields.
//
//	status before, status now --JSON--> fields that differ --> {"status":{...}}
//
// The merge rules are the patchStrategy tags of k8s.io/api/core/v1. The package lists the few fields that need a rule, so the program
// needs neither schemas nor reflection over types.
package patch
