// Package counts counts what device plugins and drivers of dynamic resources are asked.
//
//	deviceplugin, dra --Counter--> Plugins --> /metrics
//
// https://kubernetes.io/docs/reference/instrumentation/metrics/
package counts
