// Package ocispec converts a container's CRI configuration to an OCI runtime specification. Make
// depends only on its input, except that it looks up the device nodes and the seccomp profile file
// that the configuration names; callers look up everything else on the host or in the image.
//
//	api.ContainerConfig, image config --\
//	Namespaces, Files, Host, User ------+--> Make --> specs.Spec --> config.json
package ocispec
