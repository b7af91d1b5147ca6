package api

import "time"

// A DiskIO is what a pod, or one container of it, has read from disks and written to them.
type DiskIO struct {
	UID       string    `json:"uid"`                 // of the pod
	Container string    `json:"container,omitempty"` // empty: the pod as a whole
	At        time.Time `json:"at"`
	Read      uint64    `json:"read"` // bytes
	Written   uint64    `json:"written"`
}
