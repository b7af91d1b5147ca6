package configure

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/durable"
)

// OfferProgram offers another version of islet for a trial with the configuration that is in use. An operator's
// request, for which asked is true, may repeat a failed trial. OfferProgram returns the ID of the offer, and whether
// the trial will take place.
func (k *Keeper) OfferProgram(p trial.Program, from string, asked, despitePods bool) (id string, tried bool, err error) {
	k.mu.Lock()
	good := k.activeConfiguration()
	p.Left, p.Replaces = k.leftVersion(p.Version), k.c.Version
	k.mu.Unlock()
	c := trial.WithProgram(good, p, trial.Source{File: from}, k.c.Now())
	c.DespitePods = despitePods
	err = k.Offer(c, asked, false)
	k.mu.Lock()
	defer k.mu.Unlock()
	return c.ID, err == nil && k.record.Assigned == c, err
}

// leftVersion returns "" if the given version is newer than the running one. Otherwise the given version is a
// downgrade, and leftVersion returns the version that the node leaves: the running one, or a newer one from which an
// operator has downgraded before. The caller holds mu.
func (k *Keeper) leftVersion(version string) string {
	if newer, err := k.c.IsNewer(version, k.c.Version); err != nil || newer {
		return ""
	}
	if newer, err := k.c.IsNewer(k.record.Left, k.c.Version); err == nil && newer {
		return k.record.Left
	}
	return k.c.Version
}

// CheckOffer returns an error if no program can be offered now. An operator's request, for which asked is true, may
// replace a waiting configuration.
func (k *Keeper) CheckOffer(asked bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch waits := k.record.Assigned; {
	case k.isEnding || k.record.Trial != nil:
		return ErrBusy
	case waits != nil && !asked:
		return errors.New("another configuration or version waits for its trial (islet config show)")
	case waits != nil && waits.Program != nil && waits.Asked:
		return errors.New("another version waits for its trial (islet config show)")
	}
	return nil
}

// IsRefused reports whether a program is tried only on an operator's request. There are two reasons: the trial of the
// program has failed, or its version is not newer than a version from which an operator has downgraded. The parameter
// sum is the checksum of the archive, which identifies the program.
func (k *Keeper) IsRefused(version, sum string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if left := k.record.Left; left != "" {
		if newer, err := k.c.IsNewer(version, left); err == nil && !newer {
			return true
		}
	}
	return k.record.HasFailed(trial.Program{Version: version, Sum: sum})
}

// StagedPath returns the path of the program that waits for its trial or is on trial, or "".
func (k *Keeper) StagedPath() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.record.HasProgram() {
		return k.record.Assigned.Program.Path
	}
	return ""
}

// guardRole returns the role of the process that supervises a trial.
func (k *Keeper) guardRole(c *trial.Configuration) guard.Role {
	r := guard.Role{Kind: guard.Guard, Deadline: k.c.Edge.Configuration.Deadline.Duration}
	if p := c.Program; p != nil {
		r.Program, r.Installed, r.Deadline = p.Path, p.Installed, min(r.Deadline, trial.ProgramDeadline)
	}
	return r
}

// installProgram replaces the installed program by one that has passed its trial. It does so with a single rename. After the
// rename the installation counts as done, even if the success of the trial is not stored: see isInstalled. If the
// result is an error, the file was not renamed.
func (k *Keeper) installProgram(c *trial.Configuration) error {
	if c == nil || c.Program == nil {
		return nil
	}
	k.keepReplaced(c.Program)
	if err := os.Rename(c.Program.Path, c.Program.Installed); err != nil {
		return fmt.Errorf("install the program: %w", err)
	}
	if err := durable.SyncDir(filepath.Dir(c.Program.Installed)); err != nil {
		k.c.Log.Warn("a power cut may undo the installation of another version of islet", "program",
			c.Program.Installed, "error", err)
	}
	return nil
}
