package api

import "time"

// PathConfiguration is the endpoint of the node's configuration. GET returns the configuration.
// POST sends a new configuration (?dryRun, ?despitePods, ?consent=FIELD, ?from=NAME). DELETE
// returns to the previous configuration.
const PathConfiguration = "/islet/v1/configuration"

// MaxConfiguration is the maximum size of a sent configuration in bytes: two documents of up to 1
// MiB each.
const MaxConfiguration = 2<<20 + 4<<10

// Configuration describes the configuration that was sent to a node and the configuration that the
// node uses.
type Configuration struct {
	Active   ConfigurationRef  `json:"active"`             // the configuration that the agent uses
	Good     ConfigurationRef  `json:"lastKnownGood"`      // the configuration to which a failed trial returns
	Before   ConfigurationRef  `json:"before"`             // the last known good configuration before Good
	Assigned *ConfigurationRef `json:"assigned,omitempty"` // the last configuration that was sent, until its trial has ended
	Trying   bool              `json:"trying"`             // Assigned is being tried
	Attempts int               `json:"attempts,omitempty"` // the number of attempts to try Assigned
	Waiting  string            `json:"waiting,omitempty"`  // the condition that the trial waits for
	// Failed describes why the last configuration that was sent is not in use. It is nil if that
	// configuration is in use or has not been tried yet.
	Failed *ConfigurationFailure `json:"failed,omitempty"`
	// FailedUpdate describes why the node does not run the last version of islet that was sent to
	// it.
	FailedUpdate *ConfigurationFailure `json:"failedUpdate,omitempty"`
	Problem      string                `json:"problem,omitempty"` // a problem that an administrator should know
	Follows      string                `json:"follows,omitempty"` // the source that the node follows
	// FollowProblem is the reason why the node cannot follow its source. It is empty if there is no such reason.
	FollowProblem string `json:"followProblem,omitempty"`
	// Overridden is true if an administrator selected a configuration that is not from the source. The node uses
	// it until the source changes.
	Overridden bool                 `json:"overridden,omitempty"`
	History    []ConfigurationTrial `json:"history,omitempty"` // ended trials, the newest last
	Files      []string             `json:"files"`             // the node's own files that were read, in order
}

// A ConfigurationRef names a configuration.
type ConfigurationRef struct {
	ID      string    `json:"id"` // a hash of the content, or "local" for the node's own files
	From    string    `json:"from"`
	At      time.Time `json:"at,omitzero"` // when the configuration was received
	Kubelet string    `json:"kubelet,omitempty"`
	Edge    string    `json:"edge,omitempty"`
	Consent []string  `json:"consent,omitempty"` // the fields of the node that the configuration may change
}

// A ConfigurationFailure describes why a configuration is not in use.
type ConfigurationFailure struct {
	ID  string    `json:"id"`
	Why string    `json:"why"`
	At  time.Time `json:"at"`
}

// A ConfigurationTrial is an ended trial.
type ConfigurationTrial struct {
	ID      string    `json:"id"`
	From    string    `json:"from"`
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"`
	Why     string    `json:"why,omitempty"` // the reason why the trial failed; empty if it succeeded
	// Interrupted is true if the trial was cancelled, or was interrupted, as by a power cut. The configuration of an
	// interrupted trial has not failed and can be tried again.
	Interrupted bool `json:"interrupted,omitempty"`
	// Withdrawn is true as well if no trial was interrupted: the configuration was given up before its trial, or because its bundle has
	// failed or was reverted.
	Withdrawn bool `json:"withdrawn,omitempty"`
	// Untried says how a version of islet has failed before its trial: unfit, crashed, late or unknown. It is empty if a trial was
	// possible.
	Untried string `json:"untried,omitempty"`
}

// ConfigurationOptions contains the options of a request that sends a configuration.
type ConfigurationOptions struct {
	Consent     []string // the fields of the node that the configuration may change
	Dry         bool     // only validate the configuration
	DespitePods bool     // ignore pods, and pressures that pods cause, in the configuration's trial
}
