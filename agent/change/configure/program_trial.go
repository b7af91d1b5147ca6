package configure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/printable"
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
	switch waits, unknown := k.record.Assigned, k.c.Start.CheckKeys(); {
	case k.isEnding || k.record.Trial != nil:
		return ErrBusy
	case unknown != nil && !asked:
		return unknown
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

// maxTrialReason is the maximum length of a reason in ProgramTrials, in bytes.
const maxTrialReason = 512

// ProgramTrials returns the outcomes of other versions of islet. It does not set the fields about the node.
func (k *Keeper) ProgramTrials() api.UpdateState {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := api.UpdateState{OnTrial: k.record.Trial != nil && k.record.HasProgram(), Refused: k.record.Refused, Left: k.record.Left}
	for _, o := range k.record.History {
		if !o.Program {
			continue
		}
		result, _ := o.Result()
		out.Trials = append(out.Trials,
			api.UpdateTrial{ID: o.ID, Time: o.At.UTC(), Result: result, Why: printable.Cut(o.Why, maxTrialReason)})
	}
	return out
}

// AddUntriedProgram records that a program has failed before its trial: see trial.Record.AddUntried. If the record cannot be stored, the
// failure counts until the agent restarts.
func (k *Keeper) AddUntriedProgram(p trial.Program, from string, how trial.Untried, why string, asked bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.record
	failed := k.record.AddUntried(p, trial.Source{File: from}, how, why, asked, k.c.Now())
	added := k.record
	if err := k.saveRecord(before); err != nil {
		k.record = added
		k.c.Log.Error("cannot store that a version of islet has failed before its trial", "version", p.Version, "error", err)
	}
	if failed {
		k.reportFailedProgram(added.History[len(added.History)-1])
	}
}

// ConfirmPrograms sets a function that is asked right before the trial of a program that was offered neither by a person nor by a bundle.
// It returns whether the program with this ID is still to be tried, or an error if that is unknown. ConfirmPrograms is called at most once,
// before Run.
func (k *Keeper) ConfirmPrograms(f func(ctx context.Context, id string) (due bool, err error)) {
	k.confirmProgram = f
}

// maxLooks is the number of attempts to confirm a program, a beginInterval apart. Then the program is given up, because no other offer is
// accepted while it waits. It will be offered again.
const maxLooks = 10

// isConfirmed reports whether the trial of c may begin, because a program may have waited for the link or for its download since it was
// chosen. It gives up a program that must not be tried any longer. The caller holds the trials of bundles. isConfirmed releases them during
// the confirmation, and holds them again if it returns true.
func (k *Keeper) isConfirmed(ctx context.Context, c *trial.Configuration) bool {
	if k.confirmProgram == nil || c.Program == nil || !isFromFollowedSource(c) {
		return true
	}
	k.c.Node.BundleTrials.ReleaseTrials() // the confirmation needs the network
	ctx, stop := context.WithTimeout(ctx, beginInterval)
	defer stop()
	due, err := k.confirmProgram(ctx, c.ID)
	why := "it is not to be tried any longer (islet update status)"
	if err != nil {
		why = "it could not be confirmed that it is still to be tried"
		k.c.Log.Warn(why, "program", c.ID, "error", err)
		if k.failedLooks++; k.failedLooks < maxLooks {
			return false
		}
	}
	k.failedLooks = 0
	if !due {
		k.withdrawProgram(c, why)
	}
	return due && k.c.Node.BundleTrials.HoldTrials(c.ID) // the trial of a bundle may have begun meanwhile
}

// withdrawProgram gives up a program before its trial.
func (k *Keeper) withdrawProgram(c *trial.Configuration, why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.record
	if k.record.Assigned != c {
		return
	}
	k.record.CancelAssignment(why, k.c.Now())
	if err := k.saveRecord(before); err != nil {
		k.c.Log.Error("cannot store that a version of islet is not tried any longer", "program", c.ID, "error", err)
		return
	}
	_ = os.Remove(c.Program.Path) // otherwise the next update removes it
	k.c.Log.Info("a version of islet is given up before its trial", "program", c.ID, "reason", why)
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

// installProgram replaces the installed program with one that has passed its trial. It does so with a single rename. After the
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
