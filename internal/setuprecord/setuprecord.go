package setuprecord

import (
	"encoding/json"
	"path/filepath"
	"time"

	"github.com/islet-edge/islet/internal/regular"
)

const (
	// File is the name of the record in the state directory.
	File = "setup.json"
	// MaxSize is its maximum size in bytes.
	MaxSize = 4 << 20
)

// A Refusal says why an islet.yaml is not in use, or why the agent could not start with it.
type Refusal struct {
	File string    `json:"file"`
	Why  string    `json:"why"`
	Time time.Time `json:"time"`
	// Unfit is set if the file was in use, and the agent could not start on this machine.
	Unfit bool `json:"unfit,omitempty"`
	// LED beats, and had the trigger Before.
	LED    string `json:"led,omitempty"`
	Before string `json:"before,omitempty"`
}

// String returns the refusal as a sentence.
func (r *Refusal) String() string {
	if r.Unfit {
		return r.File + " is in use, and the agent could not start: " + r.Why
	}
	return r.File + " is not in use: " + r.Why
}

// Problems returns the refusal in the record of a state directory as a sentence, or nothing.
func Problems(state string) []string {
	var r struct {
		Refused *Refusal `json:"refused"`
	}
	data, err := regular.Read(filepath.Join(state, File), MaxSize)
	if err != nil || json.Unmarshal(data, &r) != nil || r.Refused == nil {
		return nil
	}
	return []string{r.Refused.String()}
}
