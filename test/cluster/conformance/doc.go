// Package conformance runs Kubernetes' own end-to-end specs, unchanged, against nodes:
// `make conformance`, see docs/conformance.md.
//
//	suite/go.mod, dns/go.mod --build.sh--> e2e.test, e2e_node.test, ginkgo, agnhost ...   in .cache/conformance
//	images.go    the suites' images, of those programs, busybox and programs of this host
//	setup.go     TestSuite: control plane, CoreDNS, two nodes, kube-proxy beside each, a router between them
//	node_test.go TestNodeSuite: one node, in whose machine the suite runs
//	storage_test.go TestStorageSuite: the nodes of TestSuite, CSI drivers and DRA drivers of the suite;
//	             sidecars/go.mod and ../../csidriver have what runs beside them
//	registry.go  registry.k8s.io of the nodes, which has those images
//	report.go    which specs passed, failed, cannot pass; written to .cache/conformance/*.txt
//
// The specs need no internet access.
package conformance
