package api

import "time"

// PathUpdate is the endpoint that receives another version of islet. GET returns UpdateStatus. POST ?from=FILE|URL fetches the version.
// POST ?back uses the program that the last update replaced. The other parameters are ?older, ?dryRun and ?despitePods, see UpdateOptions.
// The response consists of Progress lines. The last line is sent when the version has been fetched and tested. The trial of the version
// begins after the last line.
const PathUpdate = "/islet/v1/update"

// Update is a version that was fetched and tested.
type Update struct {
	Version string `json:"version"`
	ID      string `json:"id,omitempty"` // the ID of the version's trial in PathConfiguration; empty if there is no trial
}

// UpdateOptions contains the options of a request for an update.
type UpdateOptions struct {
	Older       bool // also accept a version that is not newer
	Dry         bool // only fetch and test the version
	Back        bool // return to the program that the last update replaced
	DespitePods bool // ignore pods, and pressures that pods cause, in the version's trial
}

// UpdateStatus describes what the node follows, and what it does with the version there.
type UpdateStatus struct {
	Version string `json:"version"` // that runs
	// Archive or Index is what the node follows, without a password and query. Both are empty if it follows nothing.
	Archive string    `json:"archive,omitempty"`
	Index   string    `json:"index,omitempty"`
	Checked time.Time `json:"checked,omitzero"`  // the last check since the start of the agent
	Problem string    `json:"problem,omitempty"` // why the last check has failed
	// The following fields describe the last index that was read since the start of the agent.
	Offered string `json:"offered,omitempty"` // the version of the index
	Ring    string `json:"ring,omitempty"`    // of the node
	// State is due, waiting, paused, installed, refused or outside.
	State  string      `json:"state,omitempty"`
	Reason string      `json:"reason,omitempty"`
	Until  time.Time   `json:"until,omitzero"` // when the node may take the version; zero if unknown
	Report UpdateState `json:"report"`
}

// UpdateState is what a node that follows an index reports about versions of islet.
type UpdateState struct {
	Arch    string            `json:"arch"`             // as GOARCH
	Labels  map[string]string `json:"labels,omitempty"` // in the node's own configuration: they decide about its ring
	OnTrial bool              `json:"onTrial,omitempty"`
	Trials  []UpdateTrial     `json:"trials,omitempty"`  // trials and self-tests of the last versions, oldest first
	Refused []string          `json:"refused,omitempty"` // IDs of versions that have failed
	Left    string            `json:"left,omitempty"`    // the newest version from which a person has returned
}

// An UpdateTrial is the outcome of a version of islet on a node.
type UpdateTrial struct {
	ID     string    `json:"id"` // islet-VERSION and the beginning of the archive's SHA-512
	Time   time.Time `json:"time,omitzero"`
	Result string    `json:"result"`
	Why    string    `json:"why,omitempty"`
}

// IsUpdateFailure reports whether a result of an UpdateTrial means that the version has failed on the node.
func IsUpdateFailure(result string) bool { return result == UpdateFailed || result == UpdateUnfit }

// The results of an UpdateTrial.
const (
	UpdateKept        = "kept"
	UpdateFailed      = "failed"
	UpdateInterrupted = "interrupted"
	UpdateUnfit       = "unfit"    // the program does not run on this machine, so there was no trial
	UpdateUntested    = "untested" // a self-test had no result, or an operator's request failed, so there was no trial yet
)
