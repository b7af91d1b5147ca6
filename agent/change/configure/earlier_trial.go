package configure

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/islet-edge/islet/agent/change/trial"
)

// endEarlierTrial ends the trial of an earlier process, if the record contains one. It reports whether the record has
// changed and must be stored. The caller has locked the directory.
func (s *Start) endEarlierTrial(c *Config, boot string) (changed bool) {
	if s.recordError != nil && trial.IsDamaged(s.recordError) {
		if err := trial.SetAside(c.Dirs.State); err != nil {
			c.Log.Error("cannot set aside the broken record of the node's configuration", "error", err)
		} else if !s.OnTrial() {
			s.keysError, s.brokenRecord = nil, filepath.Join(c.Dirs.State, trial.BrokenFile)
		}
	}
	r := &s.record
	if s.OnTrial() {
		return false
	}
	changed = r.Trial != nil
	if changed {
		switch {
		case isInstalled(r.Assigned, c.Version): // the process was killed before the success was stored
			r.Accept(c.Now())
		case s.Role.Why != "" && len(s.Role.Pods) > 0:
			r.Veto(s.Role.Why, s.Role.Pods, c.Now())
		case s.Role.Why != "":
			r.FailTrial(s.Role.Why, s.Role.Outage, c.Now())
		case r.Trial.Boot != boot:
			r.FailTrial("the machine was shut down or restarted during the trial", true, c.Now())
		default:
			r.FailTrial("the agent was killed or stopped during the trial", true, c.Now())
		}
	}
	if r.HasProgram() && r.Assigned.Program.Left == "" { // a package manager may have installed this version meanwhile
		if newer, err := c.IsNewer(r.Assigned.Program.Version, c.Version); err == nil && !newer {
			r.CancelAssignment(fmt.Sprintf("the running islet %s is not older", c.Version), c.Now())
			changed = true
		}
	}
	if r.HasProgram() && isMissing(r.Assigned.Program.Path) { // the record was restored from a backup, which has no programs
		r.CancelAssignment("its file is missing", c.Now())
		changed = true
	}
	return changed
}

func isMissing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// isInstalled reports whether this process runs the program on trial. In that case the program has passed the trial,
// but the success could not be stored.
func isInstalled(c *trial.Configuration, version string) bool {
	return c != nil && c.Program != nil && c.Program.Version == version && isMissing(c.Program.Path)
}
