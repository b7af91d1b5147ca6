// Package ocispec converts the CRI configuration of a container to an OCI runtime specification.
// The result of Make depends on its input, and on the device nodes and the seccomp profile file
// that the configuration names. Make reads those itself. The caller looks up everything else on the
// host or in the image.
//
//	api.ContainerConfig, image config --\
//	Namespaces, Files, Host, User ------+--> Make --> specs.Spec --> config.json
package ocispec
