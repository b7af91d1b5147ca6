//go:build tools

// Package metricsserver names metrics-server, for go.mod to keep: the tests of a cluster
// run it unchanged.
package metricsserver

import _ "sigs.k8s.io/metrics-server/cmd/metrics-server"
