package api

import "time"

// PathConfiguration is the endpoint of the node's configuration. GET returns it. POST sends a new
// one (?dryRun, ?despitePods, ?consent=FIELD, ?from=NAME). DELETE returns to the previous one.
const PathConfiguration = "/islet/v1/configuration"

// MaxConfiguration is the most bytes of a sent configuration: two documents of up to 1 MiB each.
const MaxConfiguration = 2<<20 + 4<<10

// Configuration describes the configuration that a node was sent and the one that it uses.
type Configuration struct {
	Active   ConfigurationRef  `json:"active"`             // the one that the agent uses
	Good     ConfigurationRef  `json:"lastKnownGood"`      // the one to which a failed trial returns
	Before   ConfigurationRef  `json:"before"`             // the last known good one before Good
	Assigned *ConfigurationRef `json:"assigned,omitempty"` // the last one that was sent, if it is not tried yet
	Trying   bool              `json:"trying"`             // Assigned is being tried
	Attempts int               `json:"attempts,omitempty"` // how many trials Assigned had
	Waiting  string            `json:"waiting,omitempty"`  // the condition for which the trial waits
	// Failed says why the last configuration that was sent is not in use; nil: it is in use, or is
	// yet to be tried.
	Failed *ConfigurationFailure `json:"failed,omitempty"`
	// FailedUpdate says why the last other version of islet that was sent does not run.
	FailedUpdate *ConfigurationFailure `json:"failedUpdate,omitempty"`
	Problem      string                `json:"problem,omitempty"` // a problem that a person should know
	Follows      string                `json:"follows,omitempty"` // the source that the node follows
	// FollowProblem says why the node cannot follow its source; empty: it can.
	FollowProblem string `json:"followProblem,omitempty"`
	// Overridden: a person selected another configuration, which is in use until the source
	// changes.
	Overridden bool                 `json:"overridden,omitempty"`
	History    []ConfigurationTrial `json:"history,omitempty"` // ended trials, the newest last
}

// A ConfigurationRef names a configuration.
type ConfigurationRef struct {
	ID      string    `json:"id"` // a hash of its content, or "local": the node's own files
	From    string    `json:"from"`
	At      time.Time `json:"at,omitzero"` // when it was received
	Kubelet string    `json:"kubelet,omitempty"`
	Edge    string    `json:"edge,omitempty"`
	Consent []string  `json:"consent,omitempty"` // fields that belong to the node and that it may change nevertheless
}

// A ConfigurationFailure says why a configuration is not in use.
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
	Why     string    `json:"why,omitempty"` // why it failed; empty: it succeeded
	// Interrupted: the failure was not caused by the configuration, which may be tried again.
	Interrupted bool `json:"interrupted,omitempty"`
}

// ConfigurationOptions are the options of sending a configuration.
type ConfigurationOptions struct {
	Consent     []string // fields that belong to the node and that it may change nevertheless
	Dry         bool     // only validate it
	DespitePods bool     // ignore pods, and pressures that they cause, in its trial
}
