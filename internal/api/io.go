package api

import "time"

// A DiskIO counts the bytes that a pod, or one of its containers, has read from and written to
// disks.
type DiskIO struct {
	UID       string    `json:"uid"`                 // the pod's
	Container string    `json:"container,omitempty"` // empty for the pod as a whole
	At        time.Time `json:"at"`
	Read      uint64    `json:"read"` // bytes
	Written   uint64    `json:"written"`
}
