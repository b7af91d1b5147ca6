// Command packages makes islet's deb and rpm packages:
//
//	packaging/files --parse--> []Entry --> nfpm --> islet, islet-cni, islet-kubelet
//	dist-one's directory ---files------>            as .deb and .rpm
//
// The same input gives the same bytes: each time in a package is SOURCE_DATE_EPOCH, each owner is root.
//
// It is a Go module of its own, so that nfpm is none of islet's dependencies.
package main
