package configure

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/durable"
)

// Times of the trial of a program: one that does not work is gone after a minute.
const (
	programHealthy  = 30 * time.Second
	programDeadline = 50 * time.Second // what hangs is then killed, and the one before started
)

// OfferProgram takes another version of islet, to be tried with the configuration that is in use.
// A person who asks for it has one tried again that failed. Tried: it will be.
func (k *Keeper) OfferProgram(p trial.Program, from string, asked, despitePods bool) (id string, tried bool, err error) {
	k.mu.Lock()
	good := k.active()
	p.Left = k.left(p.Version)
	k.mu.Unlock()
	c := trial.WithProgram(good, p, trial.Source{File: from}, k.c.Now())
	c.Despite = despitePods
	err = k.Offer(c, asked, false)
	k.mu.Lock()
	defer k.mu.Unlock()
	return c.ID, err == nil && k.record.Assigned == c, err
}

// left is the newest version that a node has left once another one is installed; empty: that
// is newer than this one. The caller holds mu.
func (k *Keeper) left(version string) string {
	if newer, err := k.c.Newer(version, k.c.Version); err != nil || newer {
		return ""
	}
	if newer, err := k.c.Newer(k.record.Left, k.c.Version); err == nil && newer {
		return k.record.Left
	}
	return k.c.Version
}

// Busy says why no program can be offered now; asked: by a person, whose word counts more than
// what is followed.
func (k *Keeper) Busy(asked bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch waits := k.record.Assigned; {
	case k.ending || k.record.Trial != nil:
		return ErrBusy
	case waits != nil && !asked:
		return errors.New("something else is about to be tried (islet config show)")
	case waits != nil && waits.Program != nil && waits.Asked:
		return errors.New("another version is about to be tried (islet config show)")
	}
	return nil
}

// Refused reports whether a version, of an archive with that sum, is not tried unless a person
// asks: it has failed, or is no newer than one that a person went back from.
func (k *Keeper) Refused(version, sum string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if left := k.record.Left; left != "" {
		if newer, err := k.c.Newer(version, left); err == nil && !newer {
			return true
		}
	}
	return k.record.Knows(trial.Program{Version: version, Sum: sum})
}

// Staged is the path of a program that is to be tried, or is on trial; empty: there is none.
func (k *Keeper) Staged() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.record.Tries() {
		return k.record.Assigned.Program.Path
	}
	return ""
}

// guard is the role of the process that watches over a trial.
func (k *Keeper) guard(c *trial.Configuration) guard.Role {
	r := guard.Role{Kind: guard.Guard, Deadline: k.c.Edge.Configuration.Deadline.Duration}
	if p := c.Program; p != nil {
		r.Program, r.Installed, r.Deadline = p.Path, p.Installed, min(r.Deadline, programDeadline)
	}
	return r
}

// install puts a program that stood its trial in its place, by one rename, which is what
// counts: see installed. An error says that it did not happen.
func (k *Keeper) install(c *trial.Configuration) error {
	if c == nil || c.Program == nil {
		return nil
	}
	if err := os.Rename(c.Program.Path, c.Program.Installed); err != nil {
		return fmt.Errorf("put the program in its place: %w", err)
	}
	if err := durable.Dir(filepath.Dir(c.Program.Installed)); err != nil {
		k.c.Log.Warn("a loss of power may undo that another version of islet was put in its place", "program",
			c.Program.Installed, "error", err)
	}
	return nil
}

// installed reports whether a process of a version is of the program that was on trial, and
// that was put in its place before its end was stored.
func installed(c *trial.Configuration, version string) bool {
	if c == nil || c.Program == nil || c.Program.Version != version {
		return false
	}
	_, err := os.Lstat(c.Program.Path)
	return errors.Is(err, fs.ErrNotExist)
}
