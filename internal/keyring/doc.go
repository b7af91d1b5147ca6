// Package keyring finds the credentials for an image among those for places: hosts, and
// maybe the beginning of a path there. It reads docker configurations, which is the form
// that Secrets, files of the node and credential provider plugins have them in.
//
//	Secrets (edge/object) --.
//	files of the node ------+--> Ring.Lookup(image) --> pulls
//	plugins ----------------'    (agent/engine/credentials)
//
// https://kubernetes.io/docs/concepts/containers/images/#using-a-private-registry
package keyring
