// Package netnstest makes network namespaces that live as long as a test. They
// are kept by an open descriptor, so that a killed test leaves nothing behind.
package netnstest
