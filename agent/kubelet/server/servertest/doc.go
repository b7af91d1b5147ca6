// Package servertest runs the API server of a fake node, for tests of its clients. The node has pods in memory, logs in
// files and streams that echo, but no containers.
package servertest
