package trial

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Format is the version of the file. A newer one is read if it says that this version can, and
// what only it knows is kept: a newer islet may be tried and taken back.
const (
	Format = 1
	readBy = 1 // the oldest version that can go on with a file of this one
)

// Bounds of what is kept.
const (
	Attempts   = 3  // of a configuration whose trials were interrupted
	maxHistory = 20 // outcomes
	maxRefused = 8  // programs
	maxWhy     = 4 << 10
)

// A Source says where a configuration came from.
type Source struct {
	File            string `json:"file,omitempty"`      // that was applied at the node; or what stood for it
	Namespace       string `json:"namespace,omitempty"` // of a ConfigMap
	Name            string `json:"name,omitempty"`
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// String names it for a person.
func (s Source) String() string {
	if s.Name != "" {
		return "ConfigMap " + s.Namespace + "/" + s.Name
	}
	if s.File != "" {
		return s.File
	}
	return Local
}

// Local is what a node is called by that uses its own files only.
const Local = "the node's own files"

// A Configuration is one that the node was sent. Without documents it is that of the node's
// own files.
type Configuration struct {
	ID      string    `json:"id"` // names its content: see New
	Kubelet string    `json:"kubelet,omitempty"`
	Edge    string    `json:"edge,omitempty"`
	Consent []string  `json:"consent,omitempty"` // fields of the node's that it may change
	Source  Source    `json:"source,omitzero"`
	At      time.Time `json:"at,omitzero"` // when it came
	Program *Program  `json:"program,omitempty"`
	// Asked says that a person at the node wants it. Else it came over the link, or follows
	// from what did.
	Asked bool `json:"asked,omitempty"`
	// Despite says that pods do not count in its trial: a person wants it.
	Despite bool `json:"despitePods,omitempty"`
	// Binding is the version of the list of fields that belong to the node by which it was
	// accepted: config.Binding.
	Binding int `json:"binding,omitempty"`
}

// A Program is another version of islet that is tried with the good configuration.
type Program struct {
	Version   string `json:"version"`
	Sum       string `json:"sum"`       // of its archive, names its content
	Path      string `json:"path"`      // where it lies; gone: it was put in its place
	Installed string `json:"installed"` // its place
	// Left is the newest version that is left if this one, which is not newer than what runs,
	// takes its place; empty: it is newer.
	Left string `json:"left,omitempty"`
}

// programID begins the IDs of programs, and of nothing else.
const programID = "islet-"

func (p Program) id() string { return fmt.Sprintf("%s%s-%.12s", programID, p.Version, p.Sum) }

// WithProgram is what a node uses with a program to try.
func WithProgram(good *Configuration, p Program, from Source, now time.Time) *Configuration {
	c := &Configuration{Program: &p, Source: from, At: now}
	if good != nil {
		c.Kubelet, c.Edge, c.Consent, c.Binding = good.Kubelet, good.Edge, good.Consent, good.Binding
	}
	c.ID = c.sum()
	return c
}

// New makes a configuration of its documents; two with the same are the same one.
func New(kubelet, edge string, consent []string, from Source, now time.Time) *Configuration {
	c := &Configuration{Kubelet: kubelet, Edge: edge, Consent: slices.Sorted(slices.Values(consent)), Source: from, At: now}
	c.ID = c.sum()
	return c
}

func (c *Configuration) sum() string {
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

// IsLocal reports whether it is that of the node's own files; nil is.
func (c *Configuration) IsLocal() bool {
	return c == nil || c.Program == nil && c.Kubelet == "" && c.Edge == ""
}

// Name is what a person calls it by.
func (c *Configuration) Name() string {
	if c.IsLocal() {
		return Local
	}
	return c.ID
}

// from says whence it came.
func (c *Configuration) from() string {
	if c.IsLocal() {
		return Local
	}
	return c.Source.String()
}

// A Trial is one that is under way.
type Trial struct {
	Began  time.Time `json:"began"`
	Boot   string    `json:"boot"` // of the machine: another one says that it went off meanwhile
	Before Facts     `json:"before"`
}

// Vetoes are trials that failed because pods were not well, or made a pressure, and nothing else was
// worse than before.
type Vetoes struct {
	Trials int      `json:"trials"`
	By     []string `json:"by"` // UIDs of these pods, and pressures, sorted
}

// A Failure is why what came is not used.
type Failure struct {
	ID  string    `json:"id"`
	Why string    `json:"why"`
	At  time.Time `json:"at"`
}

// An Outcome is the end of a trial.
type Outcome struct {
	ID   string    `json:"id"`
	From string    `json:"from"`
	At   time.Time `json:"at"`
	Took float64   `json:"took"`          // seconds
	Why  string    `json:"why,omitempty"` // empty: it was accepted
	// Undecided says that Why is no fault of what was tried: the trial was interrupted, or what
	// was to be tried given up.
	Undecided bool `json:"undecided,omitempty"`
	// Program says that a version of islet was tried.
	Program bool `json:"program,omitempty"`
}

// A Record is all that is known. The zero value is that of a node that was never sent one.
// Its methods change it; what it points to is never changed.
type Record struct {
	Format   int            `json:"format"`
	ReadBy   int            `json:"readBy,omitempty"`
	Good     *Configuration `json:"good,omitempty"`     // nil: that of the node's own files
	Before   *Configuration `json:"before,omitempty"`   // the good one before Good, to go back to
	Assigned *Configuration `json:"assigned,omitempty"` // the last that came; nil: none, or it is Good
	Attempts int            `json:"attempts,omitempty"` // trials of Assigned
	Was      *Facts         `json:"was,omitempty"`      // the best that was seen before each of them
	Trial    *Trial         `json:"trial,omitempty"`    // of Assigned; nil: none is under way
	Vetoed   *Vetoes        `json:"vetoed,omitempty"`   // trials of Assigned that only pods had fail
	// Followed is the ID of what the ConfigMap that is followed had last; empty: not known. Only
	// another one counts: what a person asks for meanwhile stays until then.
	Followed string   `json:"followed,omitempty"`
	Failed   *Failure `json:"failed,omitempty"` // of the last configuration that came; nil: it did not fail
	// FailedProgram is that of the last program that came; Refused are the IDs of those that
	// failed, the newest last; Left is the newest version that a person went back from.
	FailedProgram *Failure  `json:"failedProgram,omitempty"`
	Refused       []string  `json:"refused,omitempty"`
	Left          string    `json:"leftVersion,omitempty"`
	History       []Outcome `json:"history,omitempty"` // the last one is the newest

	unknown map[string]json.RawMessage // of a newer islet
}

// Used reports whether the node was ever sent a configuration.
func (r *Record) Used() bool {
	return r.Good != nil || r.Failed != nil || r.Assigned != nil && r.Assigned.Program == nil ||
		slices.ContainsFunc(r.History, func(o Outcome) bool { return !o.Program })
}

// Kept are the configurations that a process may run by that tries none, the best first: the good
// one, the good one before it, and that of the node's own files.
func (r *Record) Kept() []*Configuration {
	switch {
	case r.Good.IsLocal():
		return []*Configuration{nil}
	case r.Before.IsLocal():
		return []*Configuration{r.Good, nil}
	}
	return []*Configuration{r.Good, r.Before, nil}
}

// Use is the configuration for a process: the one on trial if it was started for that.
func (r *Record) Use(forTrial bool) *Configuration {
	if forTrial && r.Trial != nil {
		return r.Assigned
	}
	return r.Good
}

func name(c *Configuration) string {
	if c.IsLocal() {
		return "local"
	}
	return c.ID
}
