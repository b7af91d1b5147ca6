// Package build writes bundles. It needs no agent and no privileges, and uses the network only for the images in images.lock.
//
//	DIR/bundle.yaml -----------------------> Contents: name, number, expiry, for whom, platforms
//	DIR/manifests/*.yaml --Inventory-------> files; the images that pods need
//	DIR/kubelet.yaml, edge.yaml, islet/* --> files
//	DIR/images/* (archives and layouts) ---> for each needed image and each platform: manifest, config, layers
//	DIR/images.lock --Registries-----------> the same for images that are in no archive, by digest
//	     ^                                    |
//	     '-- Lock: digests of tags            v
//	                                     bundle.Artefact --> tar, directory or registry
//
// Building the same directory again gives the same bytes. The lists are sorted, and blobs are copied without a change. The result does not
// depend on the time, the machine or the path of DIR.
package build
