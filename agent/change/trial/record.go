package trial

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/islet-edge/islet/internal/release"
)

// Format is the version of the record's format. This version can read a file in a newer format if the file's readBy
// is not above Format. It preserves unknown fields, because a newer islet on trial may be replaced by this version
// again.
const (
	Format = 1
	readBy = 1 // the oldest format version whose programs can read this file
)

// Limits of a record.
const (
	Attempts   = 3  // trials of one configuration or program
	maxHistory = 20 // outcomes
	maxRefused = 8  // programs
	maxWhy     = 4 << 10
)

// A Source is the origin of a configuration.
type Source struct {
	File            string `json:"file,omitempty"`      // applied at the node: the file name, or a text instead of it
	Namespace       string `json:"namespace,omitempty"` // of a ConfigMap
	Name            string `json:"name,omitempty"`
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Bundle          string `json:"bundle,omitempty"` // the digest of the bundle that contained it
}

// String returns the source's name for display.
// It is not inlined, because the copies at its many calls would enlarge the program.
//
//go:noinline
func (s Source) String() string {
	if s.Name != "" {
		return "ConfigMap " + s.Namespace + "/" + s.Name
	}
	if s.File != "" {
		return s.File
	}
	return Local
}

// Local is the name of the configuration that consists of the node's own files.
const Local = "the node's own files"

// A Configuration was sent to the node. Without documents, it stands for the node's own files.
type Configuration struct {
	ID      string    `json:"id"` // a hash of the content: see New
	Kubelet string    `json:"kubelet,omitempty"`
	Edge    string    `json:"edge,omitempty"`
	Consent []string  `json:"consent,omitempty"` // protected fields that the configuration may change
	Source  Source    `json:"source,omitzero"`
	At      time.Time `json:"at,omitzero"` // when it was received
	Program *Program  `json:"program,omitempty"`
	// Asked is set if an operator at the node requested it. Otherwise it came over the link.
	Asked bool `json:"asked,omitempty"`
	// DespitePods is set if the operator requested that the trial ignores the health of pods.
	DespitePods bool `json:"despitePods,omitempty"`
	// Binding is the version of the list of protected fields when the configuration was accepted: see config.Binding.
	Binding int `json:"binding,omitempty"`
}

// A Program is another version of islet, which is tried with the good configuration.
type Program struct {
	Version   string `json:"version"`
	Sum       string `json:"sum"`       // the archive's checksum, which identifies the program
	Path      string `json:"path"`      // the staged file, which no longer exists after the installation
	Installed string `json:"installed"` // the path at which the program will be installed
	// Left is the version that the node leaves if this program is a downgrade. It is empty if this program is newer
	// than the running one.
	Left string `json:"left,omitempty"`
	// Replaces is the version of the installed program, which is kept when this program is installed.
	Replaces string `json:"replaces,omitempty"`
	// Bundled is set if the archive came with a bundle. Then its trial does not wait for the link.
	Bundled bool `json:"bundled,omitempty"`
}

func (p Program) id() string { return release.ProgramID(p.Version, p.Sum) }

// WithProgram returns the configuration for the trial of a program. It consists of the good configuration and the
// program.
func WithProgram(good *Configuration, p Program, from Source, now time.Time) *Configuration {
	c := &Configuration{Program: &p, Source: from, At: now}
	if good != nil {
		c.Kubelet, c.Edge, c.Consent, c.Binding = good.Kubelet, good.Edge, good.Consent, good.Binding
	}
	c.ID = c.contentHash()
	return c
}

// New returns a configuration with these documents. Its ID depends only on the documents and the consent.
func New(kubelet, edge string, consent []string, from Source, now time.Time) *Configuration {
	c := &Configuration{Kubelet: kubelet, Edge: edge, Consent: slices.Sorted(slices.Values(consent)), Source: from, At: now}
	c.ID = c.contentHash()
	return c
}

func (c *Configuration) contentHash() string {
	if p := c.Program; p != nil {
		return p.id()
	}
	if c.IsLocal() {
		return "local"
	}
	h := sha256.New()
	for _, part := range append([]string{c.Kubelet, c.Edge}, c.Consent...) {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// IsLocal reports whether the configuration stands for the node's own files. It also returns true for nil.
// It is not inlined, because the copies at its many calls would enlarge the program.
//
//go:noinline
func (c *Configuration) IsLocal() bool {
	return c == nil || c.Program == nil && c.Kubelet == "" && c.Edge == ""
}

// Name returns the configuration's name for display.
// It is not inlined, because the copies at its many calls would enlarge the program.
//
//go:noinline
func (c *Configuration) Name() string {
	if c.IsLocal() {
		return Local
	}
	return c.ID
}

// sourceName returns the name of the configuration's source for display.
func (c *Configuration) sourceName() string {
	if c.IsLocal() {
		return Local
	}
	return c.Source.String()
}

// A Trial contains the start of the trial in progress, and the facts with which the node is compared.
type Trial struct {
	Began  time.Time `json:"began"`
	Boot   string    `json:"boot"` // the machine's boot ID; a different one means that the machine restarted during the trial
	Before Facts     `json:"before"`
}

// Vetoes counts the trials that failed only because of unhealthy pods, or pressures that pods caused.
type Vetoes struct {
	Trials int      `json:"trials"`
	By     []string `json:"by"` // the UIDs of these pods, and the pressures, sorted
}

// A Failure is the reason why a configuration or program is not used.
type Failure struct {
	ID  string    `json:"id"`
	Why string    `json:"why"`
	At  time.Time `json:"at"`
}

// An Outcome is the result of a trial.
type Outcome struct {
	ID   string    `json:"id"`
	From string    `json:"from"`
	At   time.Time `json:"at"`
	Took float64   `json:"took"`          // seconds
	Why  string    `json:"why,omitempty"` // empty if it was accepted
	// Undecided is set if the trial was interrupted or cancelled. The configuration or program was not the cause.
	Undecided bool `json:"undecided,omitempty"`
	// Withdrawn is set with Undecided if no trial was interrupted: the configuration or program was given up before its trial, or with its
	// bundle.
	Withdrawn bool `json:"withdrawn,omitempty"`
	// Program is set if a version of islet was tried, or was to be tried.
	Program bool `json:"program,omitempty"`
	// Untried says how a program has failed before its trial. It is empty if a trial was possible.
	Untried Untried `json:"untried,omitempty"`
}

// A Record contains the state of all configurations and trials. The zero value is the record of a node to which
// nothing was ever sent. Methods replace the pointers in a Record, but never change the values that these point to.
type Record struct {
	Format   int            `json:"format"`
	ReadBy   int            `json:"readBy,omitempty"`
	Good     *Configuration `json:"good,omitempty"`     // nil if it consists of the node's own files
	Before   *Configuration `json:"before,omitempty"`   // the previous good configuration
	Earlier  *Configuration `json:"earlier,omitempty"`  // the configuration before Before, while a bundle may still give up Good
	Assigned *Configuration `json:"assigned,omitempty"` // waits for its trial or is on trial; nil if there is none
	Attempts int            `json:"attempts,omitempty"` // number of trials of Assigned
	Was      *Facts         `json:"was,omitempty"`      // the best facts from before any of these trials
	Trial    *Trial         `json:"trial,omitempty"`    // the trial of Assigned; nil if none is in progress
	Vetoed   *Vetoes        `json:"vetoed,omitempty"`   // trials of Assigned that failed only because of pods
	// Followed is the ID of the last content of the followed ConfigMap, or "" if it is unknown. The ConfigMap is
	// assigned only if its content differs from the last one. So an operator's request stays in effect until the
	// ConfigMap changes.
	Followed string   `json:"followed,omitempty"`
	Failed   *Failure `json:"failed,omitempty"` // the failure of the last configuration; nil if it did not fail
	// FailedProgram is the failure of the last program that was tried. Refused contains the IDs of the programs that
	// failed. The newest is the last. Left is the newest version from which an operator has downgraded.
	FailedProgram *Failure  `json:"failedProgram,omitempty"`
	Refused       []string  `json:"refused,omitempty"`
	Left          string    `json:"leftVersion,omitempty"`
	History       []Outcome `json:"history,omitempty"` // the newest is the last

	unknownFields map[string]json.RawMessage // unknown fields, of a newer format
	dropped       []*Configuration           // configurations of bundles that were given up: see HasDropped
}

// EverSent reports whether a configuration was ever sent to the node.
func (r *Record) EverSent() bool {
	return r.Good != nil || r.Failed != nil || r.Assigned != nil && r.Assigned.Program == nil ||
		slices.ContainsFunc(r.History, func(o Outcome) bool { return !o.Program })
}

// Candidates returns the configurations that a process that is not on trial tries, in this order: the good one, the
// previous good one, and nil, which stands for the node's own files.
func (r *Record) Candidates() []*Configuration {
	switch {
	case r.Good.IsLocal():
		return []*Configuration{nil}
	case r.Before.IsLocal():
		return []*Configuration{r.Good, nil}
	}
	return []*Configuration{r.Good, r.Before, nil}
}

// Select returns the configuration for a process: the one on trial if forTrial is set, otherwise the good one.
// It is not inlined, because the copies at its many calls would enlarge the program.
//
//go:noinline
func (r *Record) Select(forTrial bool) *Configuration {
	if forTrial && r.Trial != nil {
		return r.Assigned
	}
	return r.Good
}

// Reference returns the ID of the configuration, or "local" for the node's own files.
func (c *Configuration) Reference() string { return configurationName(c) }

// configurationName is not inlined, because the copies at its many calls would enlarge the program.
//
//go:noinline
func configurationName(c *Configuration) string {
	if c.IsLocal() {
		return "local"
	}
	return c.ID
}
