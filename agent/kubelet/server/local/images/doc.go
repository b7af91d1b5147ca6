// Package images serves the paths of the local socket about images: list, pull, import, removal.
//
//	islet images ls -----------GET-----> list, details ------------------+
//	islet images import, pull --POST----> pull ----progress---------------+--> cri.Images, Garbage
//	islet images rm -----------DELETE--> remove --is it needed by a pod?--+
//	islet images prune --------POST----> prune ---------------------------'
//
// The CRI socket of the node asks PodNeeding before it removes an image.
package images
