package cli

import (
	"errors"
	"fmt"
)

// Exit codes, for scripts. islet exec returns the exit code of its command.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitUnreachable = 3
	ExitNotFound    = 4
	ExitSignal      = 130 // a signal has ended the command
)

// An exitError is an error with an exit code. If the error is nil, nothing is printed.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

// exitWith returns an error with an exit code.
func exitWith(code int, err error) error { return exitError{code, err} }

// codeOf returns the exit code of a command that ends with the given error.
func codeOf(err error) int {
	var exit exitError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &exit):
		return exit.code
	}
	return ExitFailed
}

func usage(format string, args ...any) error {
	return exitWith(ExitUsage, fmt.Errorf(format, args...))
}

// isLost reports whether the agent has disconnected.
func isLost(err error) bool {
	return codeOf(err) == ExitUnreachable
}
