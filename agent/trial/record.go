package trial

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"
)

// Format is the version of the file; a newer one is not read.
const Format = 1

// Bounds of what is kept.
const (
	Attempts   = 3  // of a configuration whose trials were interrupted
	maxHistory = 20 // outcomes
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
}

// A Program is another version of islet that is tried with the good configuration.
type Program struct {
	Version   string `json:"version"`
	Sum       string `json:"sum"`       // of its archive, names its content
	Path      string `json:"path"`      // where it lies; gone: it was put in its place
	Installed string `json:"installed"` // its place
}

func (p Program) id() string { return fmt.Sprintf("islet-%s-%.12s", p.Version, p.Sum) }

// WithProgram is what a node uses with a program to try.
func WithProgram(good *Configuration, p Program, from Source, now time.Time) *Configuration {
	c := &Configuration{Program: &p, Source: from, At: now}
	if good != nil {
		c.Kubelet, c.Edge, c.Consent = good.Kubelet, good.Edge, good.Consent
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

// A Failure is why the assigned configuration is not the good one.
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
	// Program says that a version of islet was tried.
	Program bool `json:"program,omitempty"`
}

// A Record is all that is known. The zero value is that of a node that was never sent one.
// Its methods change it; what it points to is never changed.
type Record struct {
	Format   int            `json:"format"`
	Good     *Configuration `json:"good,omitempty"`     // nil: that of the node's own files
	Before   *Configuration `json:"before,omitempty"`   // the good one before Good, to go back to
	Assigned *Configuration `json:"assigned,omitempty"` // the last that came; nil: none, or it is Good
	Attempts int            `json:"attempts,omitempty"` // trials of Assigned
	Trial    *Trial         `json:"trial,omitempty"`    // of Assigned; nil: none is under way
	Failed   *Failure       `json:"failed,omitempty"`   // of the last that came; nil: it did not fail
	History  []Outcome      `json:"history,omitempty"`  // the last one is the newest
}

// Used reports whether the node was ever sent a configuration.
func (r *Record) Used() bool {
	return r.Good != nil || r.Assigned != nil || len(r.History) > 0 || r.Failed != nil
}

// Use is the configuration for a process: the one on trial if it was started for that.
func (r *Record) Use(forTrial bool) *Configuration {
	if forTrial && r.Trial != nil {
		return r.Assigned
	}
	return r.Good
}

// Assign takes a configuration that came. False: it is good, or known to fail, or waits already.
// A person who asks again (anew) has one tried again that failed.
func (r *Record) Assign(c *Configuration, anew bool) bool {
	if r.Trial != nil || r.Assigned != nil && r.Assigned.ID == c.ID {
		return false
	}
	if name(r.Good) == c.ID {
		if r.Assigned == nil && r.Failed == nil {
			return false
		}
		r.Assigned, r.Attempts, r.Failed = nil, 0, nil // what is good is wanted again: nothing is left to try
		return true
	}
	if r.Failed != nil && r.Failed.ID == c.ID && !anew {
		return false
	}
	r.Assigned, r.Attempts, r.Failed = c, 0, nil
	return true
}

// Knows reports whether a program was the last that came, and failed.
func (r *Record) Knows(p Program) bool { return r.Failed != nil && r.Failed.ID == p.id() }

func name(c *Configuration) string {
	if c.IsLocal() {
		return "local"
	}
	return c.ID
}

// Refuse notes why a configuration that came is not tried at all.
func (r *Record) Refuse(c *Configuration, why string, now time.Time) {
	if r.Trial != nil {
		return
	}
	r.Assigned, r.Attempts = nil, 0
	r.fail(c, why, now, now)
}

// Begin starts a trial of what is assigned. False: there is nothing to try.
func (r *Record) Begin(before Facts, boot string, now time.Time) bool {
	if r.Assigned == nil || r.Trial != nil {
		return false
	}
	r.Attempts++
	r.Trial = &Trial{Began: now, Boot: boot, Before: before}
	return true
}

// Updated reports whether the last trial was one of a program, which was accepted.
func (r *Record) Updated() bool {
	n := len(r.History)
	return n > 0 && r.History[n-1].Program && r.History[n-1].Why == ""
}

// Accept makes what is on trial the good one.
func (r *Record) Accept(now time.Time) bool {
	if r.Trial == nil || r.Assigned == nil {
		return false
	}
	r.note(Outcome{ID: name(r.Assigned), From: r.Assigned.from(), At: now, Took: seconds(r.Trial.Began, now), Program: r.Assigned.Program != nil})
	if r.Assigned.Program == nil { // a program leaves the configuration as it was
		r.Before, r.Good = r.Good, r.Assigned
	}
	if r.Good.IsLocal() {
		r.Good = nil
	}
	r.Assigned, r.Attempts, r.Trial, r.Failed = nil, 0, nil, nil
	return true
}

// Fail ends a trial: the good one goes on. What only interrupted it, such as a loss of
// power, is no fault of the configuration, which is tried again, up to Attempts times.
func (r *Record) Fail(why string, interrupted bool, now time.Time) bool {
	if r.Trial == nil || r.Assigned == nil {
		r.Trial = nil
		return false
	}
	c, began := r.Assigned, r.Trial.Began
	r.Trial = nil
	if interrupted && r.Attempts < Attempts {
		r.note(Outcome{ID: name(c), From: c.from(), At: now, Took: seconds(began, now), Why: short(why)})
		return true
	}
	r.Assigned, r.Attempts = nil, 0
	r.fail(c, why, began, now)
	return true
}

func (r *Record) fail(c *Configuration, why string, began, now time.Time) {
	why = short(why)
	r.Failed = &Failure{ID: name(c), Why: why, At: now}
	r.note(Outcome{ID: name(c), From: c.from(), At: now, Took: seconds(began, now), Why: why})
}

func (r *Record) note(o Outcome) {
	r.History = append(slices.Clone(r.History), o)
	r.History = r.History[max(0, len(r.History)-maxHistory):]
}

func short(why string) string {
	if len(why) > maxWhy {
		return why[:maxWhy] + " ..."
	}
	return why
}

// seconds between two times of a clock that may have been set.
func seconds(from, to time.Time) float64 { return max(0, to.Sub(from).Seconds()) }
