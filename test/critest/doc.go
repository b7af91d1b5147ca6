// Package critest runs the CRI validation suite (sigs.k8s.io/cri-tools) and crictl,
// both unchanged, against the CRI socket of a node that has a pod of its own to run.
//
//	critest, crictl --> CRI socket --> islet --> registry (tool) --> images
//
// A test machine cannot access the registries with the suite's images. The images here have the
// same names and the content that the suite needs: busybox, and Go programs for a web server, a
// program with the setuid bit, and pause. A registry on the machine's loopback interface serves
// them to the node as a mirror of all registries.
package critest
