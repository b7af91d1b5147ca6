// Package netnstest creates network namespaces for tests. An open file descriptor keeps each
// namespace, so that a killed test leaves none behind.
package netnstest
