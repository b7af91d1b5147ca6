// Package kubetest is what tests of the edge need of an API server: one that speaks
// TLS, demands or accepts client certificates, encodes as asked (protobuf or JSON) and
// answers with what the test's handlers say. It stores nothing: the real thing is
// tested in test/cluster.
package kubetest
