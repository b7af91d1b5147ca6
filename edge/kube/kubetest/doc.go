// Package kubetest is an API server for tests of the edge. It uses TLS, accepts client certificates,
// encodes in the requested format (protobuf or JSON), and answers with the handlers of the test. It
// stores nothing. A real API server is tested in test/cluster.
package kubetest
