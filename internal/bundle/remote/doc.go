// Package remote reads bundles from registries, and writes them there.
//
//	oci://registry/repository:tag --Open--> bundle.Layout --> bundle.Open, Verify, Artefact
//	bundle.Artefact --Push--> blobs that the registry lacks, then the root under the tag
//
// A registry is not trusted. Layout checks nothing, because package bundle checks the size and the digest of each blob. Package registry
// limits the size and the duration of requests.
package remote
