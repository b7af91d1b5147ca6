// Package patch makes the strategic merge patches by which a node reports the status
// of itself and of its pods, with as few bytes as say what changed.
//
//	status before, status now --JSON--> fields that differ --> {"status":{...}}
//
// The rules are those of the API's types (patchStrategy in k8s.io/api/core/v1), which
// the package knows by the names of the few fields that have one: so neither schemas
// nor reflection over types are linked into the program.
package patch
