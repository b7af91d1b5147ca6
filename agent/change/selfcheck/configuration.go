package selfcheck

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/islet-edge/islet/agent/change/configure"
	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/internal/release"
)

// checkConfiguration loads the configuration of the agent that runs this self-test, as this program would load it at
// its start. The error names the field or the flag. So an update to a version that does not have a feature gate or
// flag used by the node fails before the trial.
//
// The agent is given by its directory in /proc. If no agent has staged this program in its own directory,
// checkConfiguration returns nil. It reads the agent's command line from /proc, because agents of earlier versions do
// not pass their command line to the self-test.
func checkConfiguration(self, agent string) error {
	staged, err := filepath.Match(release.Program+"-*.new", filepath.Base(self))
	exe, missing := os.Readlink(filepath.Join(agent, "exe"))
	if err != nil || missing != nil || !staged || filepath.Dir(exe) != filepath.Dir(self) {
		return err
	}
	line, err := os.ReadFile(filepath.Join(agent, "cmdline"))
	if err != nil {
		return err
	}
	args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")[1:]
	if len(args) > 0 && args[0] == "agent" {
		args = args[1:]
	}
	if err := os.Chdir(filepath.Join(agent, "cwd")); err != nil { // paths in flags may be relative
		return err
	}
	start := configure.Begin(guard.Role{}, args)
	_, _, err = start.Load()
	if err = errors.Join(err, start.SkipReason()); err != nil {
		err = fmt.Errorf("this version does not accept the node's configuration: %w", err)
		if !errors.As(err, new(syscall.Errno)) { // otherwise a file could not be read
			err = unfitError{err}
		}
		return err
	}
	return nil
}
