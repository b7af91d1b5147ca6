// Package kubetest is an API server for tests of the edge. It uses TLS, accepts client certificates, encodes in the requested format
// (protobuf or JSON), and passes requests to the handlers of the test. It stores no objects. The tests in test/cluster use a real API
// server.
package kubetest
