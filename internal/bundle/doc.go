// Package bundle defines the format of bundles and reads them. A bundle is one signed artefact with everything that a node should run.
//
//	tar or directory --OpenLayout--> Layout --Open(policy)--> Bundle: contents, files, signatures
//	                                            |                |
//	     1. index.json, root: not trusted       |                | Images: manifests and configs, one at a time
//	     2. signatures: verified                |                | Verify: every blob as a stream
//	     3. contents: their digest is signed    |                v
//	                                            |          digests of all that has an effect
//	                                            v
//	parts --WriteTar, WriteDir--> tar or directory, always the same bytes
//
// The page docs/bundle-format.md describes the format. Everything that a bundle does to a node is reached from the digest that is signed:
// contents manifest, contents, files, image manifests, configs, layers. Open and Images decode one document at a time, after a check of its
// size, digest and weight. So a hostile bundle cannot take more than a few MiB of memory.
//
// The package knows no type of Kubernetes, has no state and needs no privileges. It also compiles for macOS.
//
// The packages below it:
//
//	build   writes a bundle from a source directory
//	remote  bundles in registries
//	sealed  encrypted Secrets
package bundle
