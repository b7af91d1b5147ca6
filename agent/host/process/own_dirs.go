package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/agent/host/volatile"
	"github.com/islet-edge/islet/edge/keyfile"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/runtime/mounts"
)

// DirsUsed reports whether the directories have been used by an agent. It returns an error if a directory contains files
// of another program.
func DirsUsed(d config.Dirs) (bool, error) {
	state, err := listNames(d.State)
	if err != nil {
		return false, err
	}
	run, err := listNames(d.Run)
	if err != nil {
		return false, err
	}
	// The database may have been deleted. The lock file of a full disk has no mark.
	stored := slices.Contains(state, Database) || keyfile.Place{Dir: d.State}.Found() || wasLocked(d.State, state)
	brought := func(n string) bool { return n == "images" } // may exist before the first start
	if others := slices.DeleteFunc(state, brought); !stored && len(others) > 0 {
		return false, fmt.Errorf("%s is not a state directory of islet, it has no %s, no key in %s and no lock of an agent: "+
			"nothing was changed; give the --state-dir of the agent", d.State, Database, keyfile.Name)
	}
	if len(run) > 0 && !wasLocked(d.Run, run) {
		return false, fmt.Errorf("%s is not a run directory of islet, it has no lock of an agent: nothing was "+
			"changed; give the --run-dir of the agent",
			d.Run)
	}
	return stored || len(run) > 0, nil
}

// listNames returns the names of the files in a directory. If the directory does not exist, it returns none.
func listNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all, nil
}

// wasLocked reports whether an agent has ever locked the directory. The lock file of an early version of islet is empty.
// In that case the directory must also contain other files of that version.
func wasLocked(dir string, has []string) bool {
	path := filepath.Join(dir, lockFile)
	fi, err := os.Lstat(path)
	if err != nil || !fi.Mode().IsRegular() || fi.Size() > int64(len(lockMark)) {
		return false
	}
	text, err := os.ReadFile(path)
	early := len(text) == 0 && slices.Contains(has, "sandboxes") && slices.Contains(has, "oci")
	return err == nil && (string(text) == lockMark || early)
}

// RemoveRun removes the agent's files from its run directory. It then removes the directory if that is empty.
func RemoveRun(dir string, sockets ...string) error {
	if err := mounts.DetachBelow(dir); err != nil {
		return fmt.Errorf("%w; nothing was removed below %s", err, dir)
	}
	own := append([]string{
		"b", "boot", "sandboxes", "ns", "s", "oci", "h", "t", Hooks, Probes, OOM, Shutdown, Shutdown + ".new",
		PageHistory, volatile.Name, lockFile, filepath.Base(api.DefaultSocket),
	}, sockets...)
	has, err := listNames(dir)
	errs := []error{err}
	var others []string
	for _, n := range has {
		probe := strings.HasPrefix(n, "oci-") && strings.HasSuffix(n, ".probe")
		if !probe && !slices.Contains(own, n) {
			others = append(others, n)
			continue
		}
		errs = append(errs, mounts.RemoveAll(filepath.Join(dir, n)))
	}
	if len(others) > 0 {
		errs = append(errs, fmt.Errorf("%s contains files that are not islet's, so it is not removed: %s", dir, strings.Join(others, ", ")))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EBUSY) { // EBUSY for a mount point
		return err
	}
	return nil
}
