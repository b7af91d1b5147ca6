// Package ocispec converts the CRI configuration of a container to an OCI runtime specification.
// NewSpec reads only the device nodes and the seccomp profile in the configuration. Otherwise the
// result depends only on Input.
//
//	api.ContainerConfig, image config --\
//	Namespaces, Files, Host, User ------+--> NewSpec --> specs.Spec --> config.json
package ocispec
