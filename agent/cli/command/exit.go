package command

import (
	"fmt"

	"github.com/islet-edge/islet/internal/hostcommand"
)

// Exit codes, for scripts. islet exec returns the exit code of its command.
const (
	ExitOK          = hostcommand.ExitOK
	ExitFailed      = hostcommand.ExitFailed
	ExitUsage       = hostcommand.ExitUsage
	ExitUnreachable = 3
	ExitNotFound    = 4
	ExitSignal      = 130 // a signal has ended the command
)

// An ExitError is an error with an exit code. If the error is nil, nothing is printed.
type ExitError = hostcommand.ExitError

// ExitWith returns an error with an exit code.
func ExitWith(code int, err error) error { return ExitError{Code: code, Err: err} }

// OnHost runs a command of a package outside of agent/cli. The command prints its own errors. It does not exist in a program without an
// agent, such as the program for macOS: OnHost then returns an error.
func OnHost(exists bool, run func() (code int)) error {
	if !exists {
		return Usage("this program has no agent")
	}
	if code := run(); code != ExitOK {
		return ExitWith(code, nil)
	}
	return nil
}

// CodeOf returns the exit code of a command that ends with the given error.
func CodeOf(err error) int { return hostcommand.CodeOf(err) }

// Usage returns the error of a command that is used in a wrong way.
func Usage(format string, args ...any) error {
	return hostcommand.Usage(fmt.Errorf(format, args...))
}

// IsUnreachable reports whether an error means that the agent cannot be reached or has disconnected.
func IsUnreachable(err error) bool {
	return CodeOf(err) == ExitUnreachable
}
