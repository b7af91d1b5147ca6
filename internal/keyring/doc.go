// Package keyring finds the registry credentials for an image. Each credential is valid for a place. A place
// consists of a host and, optionally, the beginning of a path on this host. The package parses docker
// configurations. They come from Secrets, files of the node, and credential provider plugins.
//
//	Secrets (edge/object) --.
//	files of the node ------+--> Ring.Lookup(image) --> pulls
//	plugins ----------------'    (agent/engine/credentials)
//
// https://kubernetes.io/docs/concepts/containers/images/#using-a-private-registry
package keyring
