// Package inventory lists what manifests define and need, without a node:
//
//	files --manifest.Decode (as islet apply does)--> pods, objects --> bundle.Inventory: images, references, devices
//
// A bundle is built and verified with this list. The package does no I/O.
package inventory
