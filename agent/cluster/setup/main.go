package setup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/islet-edge/islet/internal/clock"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/regular"
	"github.com/islet-edge/islet/metrics/host"
)

// Exit codes of the command islet setup. After ExitRefused, an agent may start. After ExitRepeat, it may not.
const (
	ExitRefused = 1
	ExitUsage   = 2
	ExitRepeat  = 75 // as EX_TEMPFAIL of sysexits.h
)

// Main runs the command islet setup, whose arguments are a file and the flags of the agent. Both may be missing.
func Main(args []string, stdout, stderr io.Writer) int {
	files := Files()
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		path, err := filepath.Abs(args[0])
		if err == nil {
			_, err = os.Lstat(path)
		}
		if err != nil {
			fmt.Fprintln(stderr, "islet: setup:", err)
			return ExitUsage
		}
		files, args = []string{path}, args[1:]
	}
	state, err := stateOf(args)
	if err != nil {
		fmt.Fprintln(stderr, "islet: setup: the flags of the agent:", err)
		tell(Console, fmt.Sprintf("setup: the flags of the agent: %v", err)) // they may be those of config.FlagsFile
		return ExitUsage
	}
	s := &Setup{
		State: state, Dir: config.DefaultDir, Args: args, Marks: host.New(host.Config{}).Marks, Now: time.Now, Step: func() {},
		Up: func() time.Duration { up, _ := clock.Uptime(); return up },
	}
	out, err := s.Apply(files...)
	if err == nil {
		if out.Applied {
			fmt.Fprintln(stdout, out.text())
			tell(Console, out.text())
		}
		return 0
	}
	text := fmt.Sprintf("%s is not in use: %v", out.File, err)
	if out.File == "" {
		text = err.Error()
	}
	fmt.Fprintln(stderr, "islet: setup:", text)
	if errors.As(err, new(*RefusedError)) {
		tell(Console, "setup: "+text)
		return ExitRefused
	}
	if old, _ := regular.Read(toldFile, 2*maxReport); string(old) != shorten(text) { // if it cannot be read, it has another text
		tell(Console, "setup: "+text)
		_ = os.WriteFile(toldFile, []byte(shorten(text)), 0o600)
	}
	return ExitRepeat
}

// toldFile has the last line about a run that is repeated, because the service repeats it every two seconds.
const toldFile = "/run/islet-setup.told"

func (r *Result) text() string {
	name, server := r.Name, r.Server
	if name == "" {
		name = "this board"
	}
	if server == "" {
		return fmt.Sprintf("setup: %s is in use: %s has no cluster", r.File, name)
	}
	return fmt.Sprintf("setup: %s is in use: %s joins %s", r.File, name, server)
}

// errEnough ends the reading of a configuration.
var errEnough = errors.New("enough was read")

// stateOf returns the state directory of an agent with the given flags.
func stateOf(args []string) (state string, err error) {
	_, _, err = config.LoadWith(args, func(d config.Dirs) (*config.SentConfiguration, error) {
		state = d.State
		return nil, errEnough
	})
	if errors.Is(err, errEnough) {
		return state, nil
	}
	return "", fmt.Errorf("%s: %w", strings.Join(args, " "), err)
}
