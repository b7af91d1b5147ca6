// Command packages builds islet's deb and rpm packages:
//
//	packaging/files --parse--> []Entry --> nfpm --> islet, islet-cni, islet-kubelet
//	dist-one's directory ---files------>            as .deb and .rpm
//
// The output is reproducible: every time in a package is SOURCE_DATE_EPOCH, and every owner is root.
//
// It is a separate Go module, so that nfpm is not a dependency of islet.
package main
