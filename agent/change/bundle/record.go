package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/islet-edge/islet/agent/change/trial"
	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/clock"
	"github.com/islet-edge/islet/internal/durable"
)

// File is the name of the record in the state directory.
const File = trial.BundleFile

const (
	recordFormat = 1
	// maxStarts is the maximum number of starts of the agent during a trial. A bundle whose pods crash the agent or the machine must not
	// be tried forever.
	maxStarts = 3
	// maxFailed is the number of digests of failed bundles that a record keeps.
	maxFailed = 16
)

// A Bundle identifies a bundle on this node.
type Bundle struct {
	Name   string        `json:"name"`
	Number int64         `json:"number"`
	Digest digest.Digest `json:"digest"` // of the contents manifest
}

// String is not inlined, because the copies at its many calls would enlarge the program.
//
//go:noinline
func (b Bundle) String() string { return fmt.Sprintf("%s number %d", b.Name, b.Number) }

// A Trial is the bundle that is in force until its pods are Ready, or until its deadline.
type Trial struct {
	Bundle
	// Configuring means that the configuration of the bundle is on trial, before its pods. The current bundle is still in force.
	Configuring bool     `json:"configuring,omitempty"`
	Must        []string `json:"must,omitempty"`   // the pods that must be Ready, as namespace/name, sorted
	Starts      int      `json:"starts,omitempty"` // how often the agent has started during the trial
}

// Results of a bundle.
const (
	Kept     = "kept"
	Failed   = "failed"
	Reverted = "reverted" // by a person
)

// An Outcome is the result of the last bundle.
type Outcome struct {
	Bundle
	Result string    `json:"result"`
	Why    string    `json:"why,omitempty"`
	Time   time.Time `json:"time"`
	Must   []string  `json:"must,omitempty"` // of a trial that has failed: the pods that were Ready before it, and its new ones
}

// A Record is the state of the bundles of a node. Its methods do no I/O.
//
//	          begin                      keep
//	no trial ------> trial is in force --------> trial becomes current, current becomes previous
//	   ^                  |
//	   '------------------' fail: current is in force again, the digest is among the failed ones
//
//	revert without a trial: previous becomes current, the digest of current is among the failed ones
//
// While the configuration of the bundle on trial is tried, current is still in force. If a bundle that has changed the configuration fails
// or is reverted, its configuration becomes the abandoned one in the same step.
type Record struct {
	Format   int              `json:"format"`
	Current  *Bundle          `json:"current,omitempty"`
	Previous *Bundle          `json:"previous,omitempty"`
	Trial    *Trial           `json:"trial,omitempty"`
	Highest  map[string]int64 `json:"highest,omitempty"` // the highest number of each name that was ever in force
	Failed   []digest.Digest  `json:"failed,omitempty"`  // bundles that failed or were reverted, the newest last
	// Signed is the latest time at which a bundle that was in force was signed. It is earlier if that time was not plausible.
	Signed time.Time `json:"signed,omitzero"`
	Last   *Outcome  `json:"last,omitempty"`
	// Waits is the number of starts of the agent after which a trial has waited for pods. No trial has begun since.
	Waits int `json:"waits,omitempty"`
	// Images are the images of each bundle that the node keeps, as NAME@DIGEST.
	Images map[digest.Digest][]string `json:"images,omitempty"`
	// Configurations are the configurations of these bundles. A bundle is missing if it says nothing about the configuration.
	Configurations map[digest.Digest]trial.Change `json:"configurations,omitempty"`
	// Abandoned is the ID of a configuration that the node must not use any more. The one before it is then in force. It is empty when this
	// has been stored. Package trial reads it.
	Abandoned string `json:"abandoned,omitempty"`
}

// InForce returns the bundle whose pods the node runs, or nil.
// It is not inlined, because the copies at its many calls would enlarge the program.
//
//go:noinline
func (r *Record) InForce() *Bundle {
	if r.Trial != nil && !r.Trial.Configuring {
		return &r.Trial.Bundle
	}
	return r.Current
}

// Keeps returns the bundles whose folders and images the node keeps.
func (r *Record) Keeps() (list []Bundle) {
	all := []*Bundle{r.Current, r.Previous}
	if r.Trial != nil {
		all = append(all, &r.Trial.Bundle)
	}
	for _, b := range all {
		if b != nil && !slices.Contains(list, *b) {
			list = append(list, *b)
		}
	}
	return list
}

// differs reports whether a bundle has been tried or reverted since the other record was in use.
func (r *Record) differs(other *Record) bool { return r.Last != other.Last || r.Trial != other.Trial }

// Errors of Check.
var (
	ErrOlder = errors.New("the bundle is older")
	ErrInUse = errors.New("it is in use already")
	ErrTrial = errors.New("another bundle is on trial")
	ErrTried = errors.New("it was tried already")
)

// HasFailed reports whether a bundle has failed its trial, or a person has reverted it. Only a person tries it again.
func (r *Record) HasFailed(d digest.Digest) bool { return slices.Contains(r.Failed, d) }

// Begin starts the trial of a bundle with these images, which was signed at the given time. The change is nil if the bundle says nothing
// about the configuration.
func (r *Record) Begin(t Trial, images []string, change *trial.Change, signed time.Time) {
	r.Trial, r.Waits = &t, 0
	r.Configurations = maps.Clone(r.Configurations)
	delete(r.Configurations, t.Digest)
	if change != nil {
		if r.Configurations == nil {
			r.Configurations = map[digest.Digest]trial.Change{}
		}
		r.Configurations[t.Digest] = *change
	}
	r.Images = maps.Clone(r.Images)
	if r.Images == nil {
		r.Images = map[digest.Digest][]string{}
	}
	r.Images[t.Digest] = images
	r.Highest = maps.Clone(r.Highest)
	if r.Highest == nil {
		r.Highest = map[string]int64{}
	}
	r.Highest[t.Name] = max(r.Highest[t.Name], t.Number)
	r.Failed = slices.DeleteFunc(slices.Clone(r.Failed), func(d digest.Digest) bool { return d == t.Digest })
	r.raise(seen{Signed: signed})
}

// Starting returns the pods that were Ready before a trial that has failed less than the given time ago. They may still be starting again.
func (r *Record) Starting(now time.Time, within time.Duration) []string {
	if r.Last == nil || !clock.IsRecent(r.Last.Time, now, within) {
		return nil
	}
	return r.Last.Must
}

// Start records that the agent has started. It reports whether the record has changed.
func (r *Record) Start(now time.Time) (changed bool) {
	if r.Trial == nil || r.Trial.Configuring { // the trial of a configuration restarts the agent, and counts itself
		return false
	}
	t := *r.Trial
	if t.Starts++; t.Starts > maxStarts {
		r.Fail(fmt.Sprintf("the agent has started %d times during the trial", t.Starts), Failed, now)
		return true
	}
	r.Trial = &t
	return true
}

// Keep ends the trial: its bundle becomes the current one.
func (r *Record) Keep(now time.Time) {
	if r.Current != nil {
		r.Previous = r.Current
	}
	b := r.Trial.Bundle
	r.Current, r.Trial = &b, nil
	r.Last = &Outcome{Bundle: b, Result: Kept, Time: now.UTC()}
}

// Configured records that the configuration of the bundle on trial was accepted: the bundle is in force.
func (r *Record) Configured() {
	t := *r.Trial
	t.Configuring = false
	r.Trial = &t
}

// Fail ends the trial: the current bundle is in force again.
func (r *Record) Fail(why, result string, now time.Time) {
	must := r.Trial.Must
	r.refuse(r.Trial.Bundle, why, result, now)
	r.Trial, r.Last.Must = nil, must
}

func (r *Record) refuse(b Bundle, why, result string, now time.Time) {
	r.Failed = append(slices.Clone(r.Failed), b.Digest)
	r.Failed = r.Failed[max(0, len(r.Failed)-maxFailed):]
	r.Last = &Outcome{Bundle: b, Result: result, Why: why, Time: now.UTC()}
	if c := r.Configurations[b.Digest]; c.Before != "" {
		r.Abandoned = c.ID
	}
}

// Revert ends the trial, or makes the previous bundle the current one.
func (r *Record) Revert(now time.Time) error {
	const why = "requested by islet bundle revert"
	switch {
	case r.Trial != nil:
		r.Fail(why, Reverted, now)
	case r.Current == nil:
		return errors.New("no bundle is in use")
	case r.Previous == nil:
		return fmt.Errorf("no bundle was in use before %s: apply another bundle instead", r.Current)
	default:
		r.refuse(*r.Current, why, Reverted, now)
		r.Current, r.Previous = r.Previous, nil
	}
	return nil
}

// A seen is the part of a record that only grows. The database has a second copy, so that neither a lost record nor a restored database
// makes the node accept an older bundle.
type seen struct {
	Highest map[string]int64 `json:"highest,omitempty"`
	Signed  time.Time        `json:"signed,omitzero"`
	// Failed are the failed bundles when the last trial began. A backup contains the failed bundles of its record, because a restored node
	// has no record.
	Failed []digest.Digest `json:"failed,omitempty"`
}

// raise merges another copy into the record: it keeps the higher numbers and the later signing time, and adds the failed bundles.
func (r *Record) raise(other seen) {
	older := slices.DeleteFunc(slices.Clone(other.Failed), r.HasFailed)
	r.Failed = append(older, r.Failed...)
	r.Failed = r.Failed[max(0, len(r.Failed)-maxFailed):]
	if other.Signed.After(r.Signed) {
		r.Signed = other.Signed.UTC()
	}
	if len(other.Highest) == 0 {
		return
	}
	highest := maps.Clone(other.Highest)
	for name, n := range r.Highest {
		highest[name] = max(highest[name], n)
	}
	r.Highest = highest
}

// forget forgets the images and configurations of bundles that the node does not keep.
func (r *Record) forget() {
	images, configurations := map[digest.Digest][]string{}, map[digest.Digest]trial.Change{}
	for _, b := range r.Keeps() {
		images[b.Digest] = r.Images[b.Digest]
		if c, ok := r.Configurations[b.Digest]; ok {
			configurations[b.Digest] = c
		}
	}
	r.Images, r.Configurations = images, configurations
}

// load reads the record in a state directory. Without one, found is false.
func load(dir string) (r Record, found bool, err error) {
	name := filepath.Join(dir, File)
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err == nil && r.Format != recordFormat {
		err = fmt.Errorf("its format is %d, this islet supports %d", r.Format, recordFormat)
	}
	for _, b := range r.Keeps() {
		if err == nil {
			err = format.CheckDigest(b.Digest) // it becomes the name of a folder
		}
	}
	if err != nil {
		return Record{}, true, fmt.Errorf("%s: %w: the pods of the bundle stay as they are; restore the file from a backup, or remove it, "+
			"start islet again and apply a bundle", name, err)
	}
	return r, true, nil
}

func (r Record) save(dir string) error {
	r.Format = recordFormat
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return durable.Write(filepath.Join(dir, File), data, 0o600)
}
