// Package counts counts and times the calls to device plugins and DRA drivers.
//
//	deviceplugin, dra --Counter--> Plugins --> /metrics
//
// https://kubernetes.io/docs/reference/instrumentation/metrics/
package counts
