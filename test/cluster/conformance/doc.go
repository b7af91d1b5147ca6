// Package conformance runs Kubernetes' own unchanged end-to-end specs against nodes: `make
// conformance`, see docs/conformance.md.
//
//	suite/go.mod, dns/go.mod --build.sh--> e2e.test, e2e_node.test, ginkgo, agnhost ...   in .cache/conformance
//	images.go    the suites' images, which contain these programs, busybox and programs of this host
//	setup.go     TestSuite: control plane, CoreDNS, two nodes with kube-proxy, a router between the nodes
//	node_test.go TestNodeSuite: one node, in whose machine the suite runs
//	storage_test.go TestStorageSuite: the nodes of TestSuite, CSI drivers and DRA drivers of the suite;
//	             sidecars/go.mod and ../../csidriver have their sidecars
//	registry.go  a registry with these images, the mirror of registry.k8s.io
//	report.go    the results of the specs, written to .cache/conformance/*.txt
//
// The specs need no internet access.
package conformance
