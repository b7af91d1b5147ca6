package api

import "time"

// Clock is what the node knows of the time. A time that there is not is zero.
type Clock struct {
	Now     time.Time `json:"now"`               // by which certificates are judged
	Machine time.Time `json:"machine"`           // of the machine's clock
	Floor   time.Time `json:"floor,omitzero"`    // has passed for certain: Now is never earlier
	Hint    time.Time `json:"hint,omitzero"`     // when a certificate of the cluster began to be valid
	Claimed time.Time `json:"claimed,omitzero"`  // of the API server; far from all others, so not believed yet
	Answers int       `json:"answers,omitempty"` // that agree on Claimed
	Refused string    `json:"refused,omitempty"` // the last time of the API server that was not believed, and why
}
