// Package critest runs the CRI validation suite (sigs.k8s.io/cri-tools) and crictl against the CRI
// socket of a node, which also runs a static pod. Both programs are unchanged.
//
//	critest, crictl --> CRI socket --> islet --> registry (tool) --> images
//
// A test machine cannot access the registries with the suite's images. This package builds images
// with the same names. The images contain busybox and a Go program. The Go program replaces three
// programs that the suite needs: a web server, a program with the setuid bit, and pause. A registry
// on the machine's loopback interface serves the images to the node as a mirror of all registries.
package critest
