package storage

import v1 "k8s.io/api/core/v1"

// These names are exported for the tests in package storage_test.
var (
	OpenStore = openStore
	PodWith   = podWith
)

// Known returns objects with one bound claim.
func Known(claim string, source v1.PersistentVolumeSource) Objects {
	o := &objects{}
	o.bound(claim, source)
	return o
}
