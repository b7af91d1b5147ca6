// Package conformance runs Kubernetes' own end-to-end specs, unchanged, against a node:
// `make conformance`. ISLET_CONFORMANCE_FOCUS and ISLET_CONFORMANCE_SKIP select specs, as
// the suite's --focus and --skip do.
//
//	suite/go.mod, dns/go.mod --build.sh--> e2e.test, ginkgo, agnhost, kube-proxy, coredns   in .cache/conformance
//	images.go: the suite's images from agnhost, busybox and programs of this host
//	TestSuite: control plane with CoreDNS, one node, kube-proxy beside it; which specs passed is written
//	to .cache/conformance/conformance.txt
//
// The internet is not reached. Specs that need more than one node or an image that
// is not made here cannot pass.
package conformance
