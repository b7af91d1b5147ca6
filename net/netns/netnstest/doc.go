// Package netnstest creates network namespaces for tests. An open file descriptor keeps each namespace alive, so a killed test leaves no
// namespace behind.
package netnstest
