// Package garbage frees disk space. It removes unused images, dead containers, and the remains of removed pods.
//
//	Run, every 5 min: record which images are in use (from memory); measure the disk
//	    |  full above the high threshold, or an image unused beyond the maximum age
//	    v
//	look (runtime, stored pods) --> Decide: which images are removed, in which order, and why the others are kept
//	    ^                             |
//	    +---- after each image -------+--> RemoveImage, until the disk is at the low threshold
//
//	islet images prune   --Prune-------------+
//	eviction             --ReclaimImages-----+--> the same steps
//	                     --ReclaimContainers----> dead containers that were replaced,
//	                                              writable layers of ended ones, logs of pods
//	                                              that were removed
//
// Decide is pure. It keeps every image that this node needs for a restart without a network. These are the images
// that a stored pod refers to by tag, digest or ID, even if the pod does not run; images of existing containers;
// pinned images; and the sandbox image of a remote runtime, because old runtimes do not pin it. Images of pods that
// have ended and will not run again may be removed. However, while no control plane is reachable, these images are
// kept, because the node might not be able to pull them again.
//
// The time of an image's last use is stored when its use begins or ends. A kubelet forgets it at each restart.
//
// If neither a threshold nor a maximum age is configured, Run does nothing. Otherwise each round makes one system
// call and lists the images once.
//
// https://kubernetes.io/docs/concepts/architecture/garbage-collection/#containers-images
package garbage
