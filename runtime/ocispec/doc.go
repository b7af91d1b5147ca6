// Package ocispec turns what the CRI says of a container into an OCI runtime
// specification. Make is pure; what depends on the host or on the image's files
// is looked up before and handed in.
//
//	api.ContainerConfig, image config --\
//	Namespaces, Files, Host, User ------+--> Make --> specs.Spec --> config.json
package ocispec
