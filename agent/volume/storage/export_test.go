package storage

import v1 "k8s.io/api/core/v1"

// For tests that look from outside.
var (
	OpenStore = openStore
	PodWith   = podWith
)

// Known has one claim, which is bound.
func Known(claim string, source v1.PersistentVolumeSource) Objects {
	o := &objects{}
	o.bound(claim, source)
	return o
}
