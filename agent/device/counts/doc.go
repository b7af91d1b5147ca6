// Package counts provides the metrics of device plugins and DRA drivers: the number and duration of calls.
//
//	deviceplugin, dra --Counter--> Plugins --> /metrics
//
// https://kubernetes.io/docs/reference/instrumentation/metrics/
package counts
