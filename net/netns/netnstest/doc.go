// Package netnstest creates network namespaces for tests. They are held by an open descriptor, so
// that a killed test leaves none behind.
package netnstest
