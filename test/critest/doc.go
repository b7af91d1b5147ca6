// Package critest runs the CRI validation suite (sigs.k8s.io/cri-tools) and crictl against the CRI
// socket of a node, which also runs a static pod. Both programs are unchanged.
//
//	critest, crictl --> CRI socket --> islet --> registry (tool) --> images
//
// A test machine cannot access the registries with the suite's images. This package builds images
// with the same names. They contain the programs that the suite needs: busybox, and a Go program
// that replaces a web server, a program with the setuid bit, and pause. A registry on the machine's
// loopback interface serves the images to the node as a mirror of all registries.
package critest
