// Package demand computes a pod's effective requests and limits, its quality of service class, and
// the share of each container. Admission, cgroups, OOM scores and the status all use it, so that
// they agree. It has no side effects.
//
//	containers, sidecars, init containers --component-helpers--> Requests, Limits
//	spec.resources (KEP-2837), overhead ------'                   Class, IsLimited
//	                                                              EffectiveLimits, ScoreMemory
//
// https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/
package demand
