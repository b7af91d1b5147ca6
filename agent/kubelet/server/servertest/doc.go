// Package servertest runs the API server of a fake node for tests of its clients. The node has no containers. Its pods are in memory, its
// logs are in files, and its streams echo.
package servertest
