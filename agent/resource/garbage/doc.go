// Package garbage gives back the space of what nobody needs: images, dead containers, and
// what pods that are gone left behind.
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
// Decide is pure. What it never gives away is what this node needs to start again without
// any network: every image that a stored pod names, by tag, digest or ID, whether the pod
// runs or not; what containers were made from; what the runtime pins, and the sandbox image
// of a runtime behind a socket, which old ones do not pin. Pods that are over for good need
// their images no more, but as long as the control plane cannot be reached, or there is
// none, theirs stay too: nobody could bring them back.
//
// When an image was last used is kept in the store, and written when an image begins or
// ceases to be used, not while it is. A kubelet forgets it with each restart.
//
// Without a threshold and a maximum age nothing runs; else one system call and one list of
// images is asked for every five minutes, and nothing more.
//
// https://kubernetes.io/docs/concepts/architecture/garbage-collection/#containers-images
package garbage
