package api

import "time"

// PathConfiguration is where the node's configuration is asked for (GET), one is sent (POST; ?dryRun,
// ?despitePods, ?consent=FIELD, ?from=NAME), and the one before is gone back to (DELETE).
const PathConfiguration = "/islet/v1/configuration"

// MaxConfiguration is the most bytes of what is sent: room for two documents, of which each may
// have a MiB.
const MaxConfiguration = 2<<20 + 4<<10

// Configuration is what a node was sent, what it uses, and why.
type Configuration struct {
	Active   ConfigurationRef  `json:"active"`             // what the agent runs by
	Good     ConfigurationRef  `json:"lastKnownGood"`      // what it goes back to
	Before   ConfigurationRef  `json:"before"`             // the good one before that
	Assigned *ConfigurationRef `json:"assigned,omitempty"` // the last one that came, if it is to be tried
	Trying   bool              `json:"trying"`             // Assigned is being tried
	Attempts int               `json:"attempts,omitempty"` // trials of Assigned
	Waiting  string            `json:"waiting,omitempty"`  // what the trial waits for
	// Failed says why the last one that came is not the good one; nil: it is, or is to be tried.
	Failed *ConfigurationFailure `json:"failed,omitempty"`
	// FailedUpdate says why the last other version of islet that came does not run.
	FailedUpdate *ConfigurationFailure `json:"failedUpdate,omitempty"`
	Problem      string                `json:"problem,omitempty"` // what a person should know
	Follows      string                `json:"follows,omitempty"` // the source that the node follows
	// FollowProblem is why it cannot; empty: it can.
	FollowProblem string `json:"followProblem,omitempty"`
	// Overridden: a person asked for another one, which counts until the source changes.
	Overridden bool                 `json:"overridden,omitempty"`
	History    []ConfigurationTrial `json:"history,omitempty"` // trials that ended, the newest last
}

// A ConfigurationRef names a configuration.
type ConfigurationRef struct {
	ID      string    `json:"id"` // of its content; local: the node's own files
	From    string    `json:"from"`
	At      time.Time `json:"at,omitzero"` // when it came
	Kubelet string    `json:"kubelet,omitempty"`
	Edge    string    `json:"edge,omitempty"`
	Consent []string  `json:"consent,omitempty"` // fields of the node's that it may change
}

// A ConfigurationFailure is why a configuration is not used.
type ConfigurationFailure struct {
	ID  string    `json:"id"`
	Why string    `json:"why"`
	At  time.Time `json:"at"`
}

// A ConfigurationTrial is one that ended.
type ConfigurationTrial struct {
	ID      string    `json:"id"`
	From    string    `json:"from"`
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"`
	Why     string    `json:"why,omitempty"` // why it failed; empty: it did not
	// Interrupted: Why is no fault of what was tried, which may be tried again.
	Interrupted bool `json:"interrupted,omitempty"`
}

// ConfigurationOptions say how a configuration is taken.
type ConfigurationOptions struct {
	Consent     []string // fields of the node's that it may change
	Dry         bool     // it is only checked
	DespitePods bool     // pods, and pressures that they make, do not count in its trial
}
