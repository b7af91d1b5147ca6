package api

import "time"

// PathBundle is the endpoint of the bundles of the node. GET returns Bundles. POST ?from=NAME starts the trial of the bundle in a file, in
// a directory, at an https URL, or in a registry (oci://). With ?older, the number of the bundle may be lower than the highest one of its
// name. The response consists of Progress lines. The agent sends the last line when the trial has begun. POST to PathBundleRevert ends the
// trial of a bundle, or returns to the previous bundle. It returns Bundles. GET of PathBundleState returns a
// bundle.SignedState whose state is a BundleState.
const (
	PathBundle       = "/islet/v1/bundle"
	PathBundleState  = "/islet/v1/bundle/state"
	PathBundleRevert = "/islet/v1/bundle/revert"
)

// A Bundle identifies a bundle.
type Bundle struct {
	Name   string `json:"name"`
	Number int64  `json:"number"`
	Digest string `json:"digest"`
	// The following fields are set only in Progress.
	InUse  bool    `json:"inUse,omitempty"`  // the bundle was already in use, so there is no trial
	Update *Update `json:"update,omitempty"` // this version of islet from the bundle is tried first; then apply the bundle again
}

// Bundles is the state of the bundles of a node.
type Bundles struct {
	Current  *Bundle `json:"current,omitempty"`  // the last bundle that was kept
	Previous *Bundle `json:"previous,omitempty"` // islet bundle revert returns to it
	Trial    *Bundle `json:"trial,omitempty"`    // the node runs its pods until the trial ends
	// Configuring means that the configuration of Trial is tried first. Until it is accepted, the node runs the pods of Current.
	Configuring bool `json:"configuring,omitempty"`
	// Returning means that a bundle has failed or was reverted, and the agent restarts with the configuration before the bundle.
	Returning bool `json:"returning,omitempty"`
	// Configuration is the configuration of Current, or of Trial once it is accepted. It is nil if the bundle says nothing about the
	// configuration.
	Configuration *BundleConfiguration `json:"configuration,omitempty"`
	Must          []string             `json:"must,omitempty"`    // the pods that the trial requires to be Ready, as namespace/name
	Staging       string               `json:"staging,omitempty"` // the current step of islet bundle apply
	Highest       map[string]int64     `json:"highest,omitempty"` // the highest number by the name of the bundle
	Failed        []string             `json:"failed,omitempty"`  // digests of bundles that failed or were reverted
	Last          *BundleOutcome       `json:"last,omitempty"`
	Medium        *BundleMedium        `json:"medium,omitempty"` // since the start of the agent
	Source        *BundleSource        `json:"source,omitempty"` // only if the node follows one
	Report        *BundleReport        `json:"report,omitempty"` // only if the node sends its state to a URL
}

// A BundleConfiguration is the configuration of a bundle.
type BundleConfiguration struct {
	ID    string `json:"id"` // local: the node's own files
	InUse bool   `json:"inUse"`
}

// A BundleReport is the URL to which a node sends its state.
type BundleReport struct {
	URL     string    `json:"url"`               // without its password and query
	Sent    time.Time `json:"sent,omitzero"`     // of the last report since the start of the agent
	Problem string    `json:"problem,omitempty"` // why the last attempt has failed
}

// A BundleOutcome is the result of the last trial or revert.
type BundleOutcome struct {
	Bundle
	Result string    `json:"result"` // kept, failed or reverted
	Why    string    `json:"why,omitempty"`
	Time   time.Time `json:"time"`
}

// A BundleMedium is the last medium with the configured label, such as a stick.
type BundleMedium struct {
	Device string  `json:"device"`           // such as sdb1
	File   string  `json:"file,omitempty"`   // the file or directory of Bundle
	Bundle *Bundle `json:"bundle,omitempty"` // the newest bundle on the medium
	// Result is working, nothing (there is no bundle), refused, inUse (the bundle was in use already), kept, failed or reverted.
	Result string    `json:"result"`
	Why    string    `json:"why,omitempty"`
	Time   time.Time `json:"time"`
}

// A BundleState is what a node reports about its bundles. The node signs it.
type BundleState struct {
	Node     string         `json:"node"`
	Time     time.Time      `json:"time"` // of the node's clock
	Versions BundleVersions `json:"versions"`
	Bundles
	Pods []BundlePod `json:"pods"` // all pods of the node
	Disk Disk        `json:"disk"`
	Wear *Flash      `json:"wear,omitempty"` // nil if unknown
	// Update is nil if the node follows no index of islet's versions.
	Update *UpdateState `json:"update,omitempty"`
}

// BundleVersions are the versions of a node's software.
type BundleVersions struct {
	Islet      string `json:"islet"`
	Kubernetes string `json:"kubernetes"`
	Kernel     string `json:"kernel"`
}

// A BundlePod is a pod in a BundleState.
type BundlePod struct {
	Name   string `json:"name"` // namespace/name
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"` // why it is not Ready
}

// A BundleSource is the URL or the reference in a registry whose bundle the node follows.
type BundleSource struct {
	Source  string    `json:"source"`            // without a password and query
	Checked time.Time `json:"checked,omitzero"`  // the last request since the start of the agent
	Next    time.Time `json:"next,omitzero"`     // the next request
	Problem string    `json:"problem,omitempty"` // why its bundle is not used
}
