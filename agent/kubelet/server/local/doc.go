// Package local is the parent of the packages that serve islet's own paths (/islet/v1/..., package api). Only the local socket has these
// paths. Each package returns its handlers by pattern.
//
//	images  images: list, pull, import, removal
//	node    the node: configuration, versions, bundles, events, devices, clock, shutdown
//	pods    pods and the objects that pods use: apply, delete, watch, restart, debug, files
//	status  the status of the node
package local
