// Package demand computes what a pod asks for and what it may use: its requests and
// limits as a whole, its quality of service, and each container's part in them. It is
// the only place where that is computed, so that admission, cgroups, the OOM killer's
// order and the status agree. It is pure.
//
//	containers, sidecars, init containers --component-helpers--> Requests, Limits
//	spec.resources (KEP-2837), overhead ------'                   Class, Limited
//	                                                              Container, Memory
//
// https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/
package demand
