// Package critest runs the CRI validation suite (sigs.k8s.io/cri-tools) and crictl,
// both unchanged, against the CRI socket of a node that has a pod of its own to run.
//
//	critest, crictl --> CRI socket --> islet --> registry (tool) --> images
//
// The suite's images are in registries that a test machine does not reach. The images
// here have their names and what the suite uses of them: busybox, and Go programs that
// play a web server, a program with the setuid bit, and pause. A registry on the
// machine's loopback gives them to the node as a mirror of all registries.
package critest
