// Package conformance runs Kubernetes' own end-to-end specs, unchanged, against nodes:
// `make conformance`, see docs/conformance.md.
//
//	suite/go.mod, dns/go.mod --build.sh--> e2e.test, e2e_node.test, ginkgo, agnhost ...   in .cache/conformance
//	images.go    images of the suites, with these programs, busybox and programs of this host
//	setup.go     TestSuite: control plane, CoreDNS, two nodes with kube-proxy, a router between them
//	node_test.go TestNodeSuite: one node, in whose machine the suite runs
//	storage_test.go TestStorageSuite: the nodes of TestSuite, CSI drivers and DRA drivers of the suite;
//	             sidecars/go.mod and ../../csidriver contain their sidecars
//	registry.go  replaces registry.k8s.io on the nodes, and contains these images
//	report.go    lists the specs that passed, failed or cannot pass, in .cache/conformance/*.txt
//
// The specs need no internet access.
package conformance
