//go:build tools

// Package metricsserver imports metrics-server. Because of the import, go.mod requires
// metrics-server. The tests in test/cluster/node build and run the unchanged metrics-server.
package metricsserver

import _ "sigs.k8s.io/metrics-server/cmd/metrics-server"
