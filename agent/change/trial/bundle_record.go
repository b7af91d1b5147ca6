package trial

import (
	"encoding/json"
	"path/filepath"
	"time"

	"github.com/islet-edge/islet/internal/regular"
)

// BundleFile is the name of the record of bundles in the state directory. Package bundle writes it. One rename of this file decides about
// the pods and the configuration of a bundle, so a Record is used only as this file allows.
const BundleFile = "bundle.json"

// A Change is the change of the node's configuration that belongs to a bundle.
type Change struct {
	ID     string `json:"id"`               // of the configuration of the bundle, or "local"
	Before string `json:"before,omitempty"` // ID of the configuration that it replaced; empty if it was in use already
}

// BundleRecord is the part of the record of bundles that decides about configurations.
type BundleRecord struct {
	Trial *struct {
		Digest string `json:"digest"`
	} `json:"trial"`
	Changes   map[string]Change `json:"configurations"` // by the digest of the bundle
	Abandoned string            `json:"abandoned"`      // ID of a configuration whose bundle has failed or was reverted
}

// readBundles reads the record of bundles in a directory. If it cannot be read, no configuration of a bundle is tried.
func readBundles(dir string) (b BundleRecord) {
	data, err := regular.Read(filepath.Join(dir, BundleFile), maxFile)
	if err != nil || json.Unmarshal(data, &b) != nil {
		return BundleRecord{}
	}
	return b
}

// isTried reports whether the configuration with an ID belongs to the bundle on trial.
func (b *BundleRecord) isTried(id string) bool {
	return b.Trial != nil && b.Changes[b.Trial.Digest].ID == id
}

// obey drops the configurations that the record of bundles does not allow: an assigned one whose bundle is not on trial, and an abandoned
// one.
func (r *Record) obey(b BundleRecord) {
	if c := r.bundleAssignment(); c != nil && !b.isTried(configurationName(c)) {
		r.dropAssignment()
	}
	if b.Abandoned != "" {
		r.Abandon(b.Abandoned)
	}
}

// bundleAssignment returns the assigned configuration if it came from a bundle.
func (r *Record) bundleAssignment() *Configuration {
	if c := r.waitingConfiguration(); c != nil && c.Source.Bundle != "" {
		return c
	}
	return nil
}

func (r *Record) dropAssignment() {
	r.dropped = append(r.dropped, r.Assigned)
	r.Trial = nil
	r.set(nil)
}

// Abandon gives up the configuration of a bundle: it cancels the assignment, and makes the configuration before it the good one.
func (r *Record) Abandon(id string) {
	if c := r.bundleAssignment(); c != nil && configurationName(c) == id {
		r.dropAssignment()
	}
	if r.IsAbandoned(id) {
		return
	}
	c := r.Good
	if c == nil {
		c = &Configuration{ID: id}
	}
	r.dropped = append(r.dropped, c)
	r.Good, r.Before, r.Earlier = r.Before, r.Earlier, nil
	// A ConfigMap is not used while the configuration of a bundle is. It may have been assigned in between.
	if waits := r.waitingConfiguration(); waits != nil && !waits.Asked && r.Good != nil && r.Good.Source.Bundle != "" {
		r.set(nil)
		r.Followed = ""
	}
	if r.HasProgram() { // it is tried with the configuration that is good now
		a := r.Assigned
		c := WithProgram(r.Good, *a.Program, a.Source, a.At)
		c.Asked, c.DespitePods = a.Asked, a.DespitePods
		r.Assigned = c
	}
}

// IsAbandoned reports whether a configuration is neither the good one nor assigned for a bundle.
func (r *Record) IsAbandoned(id string) bool {
	c := r.bundleAssignment()
	return (c == nil || configurationName(c) != id) && (configurationName(r.Good) != id || configurationName(r.Before) == id)
}

// HasDropped adds the outcomes of the configurations that were dropped. It reports whether there were any, so that the record must be
// stored.
func (r *Record) HasDropped(now time.Time) bool {
	for _, c := range r.dropped {
		r.addWithdrawn(c, "its bundle has failed or was reverted (islet bundle status)", now)
	}
	changed := len(r.dropped) > 0
	r.dropped = nil
	return changed
}
