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
	"github.com/islet-edge/islet/internal/hostcommand"
	"github.com/islet-edge/islet/metrics/host"
)

// Exit codes of the command islet setup, besides the code for a wrong usage. After ExitRefused, an agent may start. After ExitRepeat, it
// must not start.
const (
	ExitRefused = hostcommand.ExitFailed
	ExitRepeat  = 75 // as EX_TEMPFAIL of sysexits.h
)

// Main runs the command islet setup, whose arguments are a file and the flags of the agent. Both may be missing. The function loadConfig
// returns the configuration with which an agent starts, which may be one that was sent to the node.
func Main(
	args []string, loadConfig func(args []string) (*config.Config, []config.Notice, error), stdout, stderr io.Writer,
) int {
	s := &Setup{Load: loadConfig, Host: os.DirFS("/")}
	return hostcommand.Report(stderr, "setup", s.run(args, stdout, teller{Console, "/run/islet-setup.told"}))
}

func (s *Setup) run(args []string, stdout io.Writer, t teller) error {
	files := Files()
	isNamed := len(args) > 0 && args[0] != "" && args[0][0] != '-'
	if isNamed {
		path, err := filepath.Abs(args[0])
		if err == nil {
			_, err = os.Lstat(path)
		}
		if err != nil {
			return hostcommand.Usage(err)
		}
		files, args = []string{path}, args[1:]
	}
	dirs, err := config.Directories(args)
	if err != nil {
		err = fmt.Errorf("the flags of the agent: %s: %w", strings.Join(args, " "), err)
		t.fail(err.Error()) // a person at the board must see this if the flags come from config.FlagsFile
		return hostcommand.Usage(err)
	}
	s.State, s.Dir, s.Args = dirs.State, config.DefaultDir, args
	s.Marks, s.Now, s.Step = host.New(host.Config{}).Marks, time.Now, func() {}
	s.Up = func() time.Duration { up, _ := clock.Uptime(); return up }
	out, err := s.Apply(files...)
	return t.report(out, err, isNamed, stdout)
}

// report prints the result of Apply, and returns the error of the command. The parameter isNamed is true if a person has named the file.
// The service names none, and has no output while the file stays the same.
func (t teller) report(out Result, err error, isNamed bool, stdout io.Writer) error {
	if err == nil {
		t.forget()
		switch {
		case out.Applied:
			fmt.Fprintln(stdout, out.text())
			tell(t.console, out.text())
		case isNamed:
			fmt.Fprintf(stdout, "setup: %s is in use already\n", out.File)
		}
		return nil
	}
	text := fmt.Sprintf("%s is not in use: %v", out.File, err)
	refused := (*RefusedError)(nil)
	code := ExitRepeat
	if errors.As(err, &refused) {
		code = ExitRefused
	}
	switch {
	case out.File == "":
		text = err.Error()
	case refused != nil && refused.Unfit:
		text = fmt.Sprintf("%s is in use, and the agent cannot start: %v", out.File, err)
	}
	t.fail(text)
	return hostcommand.ExitError{Code: code, Err: errors.New(text)}
}

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
