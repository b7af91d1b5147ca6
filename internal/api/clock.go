package api

import "time"

// Clock describes the node's clock, and the times with which the node compares its clock. An unknown time is zero.
type Clock struct {
	Now     time.Time `json:"now"`               // the time with which the validity of certificates is checked
	Machine time.Time `json:"machine"`           // the machine's clock
	Floor   time.Time `json:"floor,omitzero"`    // a time that has certainly passed: Now is never earlier
	Hint    time.Time `json:"hint,omitzero"`     // the start of the validity of a certificate of the cluster
	Signed  time.Time `json:"signed,omitzero"`   // the time at which a bundle was signed; only on a node without an API server
	Claimed time.Time `json:"claimed,omitzero"`  // the API server's time; not trusted yet, because it differs much from all other times
	Answers int       `json:"answers,omitempty"` // the number of answers that agree on Claimed
	Refused string    `json:"refused,omitempty"` // the last time from the API server that was rejected, and the reason
}
