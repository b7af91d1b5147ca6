// Package resource is what keeps the disk of a node from filling up and wearing out, and tells
// when its memory was not enough; built by one configuration.
//
//	garbage: images and dead containers      flash: what is written, and a budget of it
//	oom: kills that the kernel tells of      eviction: pods that take too much end
//	usage: what was measured, by pods        settle: gives memory back at rest
package resource
