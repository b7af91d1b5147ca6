// Package keyring finds the registry credentials for an image. Each credential is for a place,
// which is a host and optionally the beginning of a path on it. It parses docker configurations,
// the format of such Secrets, of files of the node and of credential provider plugins.
//
//	Secrets (edge/object) --.
//	files of the node ------+--> Ring.Lookup(image) --> pulls
//	plugins ----------------'    (agent/engine/credentials)
//
// https://kubernetes.io/docs/concepts/containers/images/#using-a-private-registry
package keyring
