// Package garbage frees disk space. It removes unused images, dead containers, and the remains of removed pods.
//
//	Run, every 5 min: note which images are in use (from memory); one look at the disk
//	    |  full above the high threshold, or an image unused beyond the maximum age
//	    v
//	look (runtime, stored pods) --> Decide: what goes, in which order, why the rest stays
//	    ^                             |
//	    +---- after each image -------+--> RemoveImage, until the disk is at the low threshold
//
//	islet images prune   --Prune-------------+
//	eviction             --ReclaimImages-----+--> the same look and the same Decide
//	                     --ReclaimContainers----> dead containers that a newer one follows,
//	                                              writable layers of ended ones, logs of pods
//	                                              that are gone
//
// Decide is pure. It keeps every image that this node needs for a restart without a network: images that a stored pod
// refers to by tag, digest or ID, even if the pod does not run; images of existing containers; pinned images; and the
// sandbox image of a remote runtime, because old runtimes do not pin it. Images of pods that have ended for
// good may be removed. They are kept while no control plane is reachable, because a removed image could not be pulled
// again then.
//
// The time of an image's last use is stored when its use begins or ends. A kubelet forgets it at each restart.
//
// If neither a threshold nor a maximum age is configured, Run does nothing. Otherwise each round makes one system
// call and lists the images once.
//
// https://kubernetes.io/docs/concepts/architecture/garbage-collection/#containers-images
package garbage
