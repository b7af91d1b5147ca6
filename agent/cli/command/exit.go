package command

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

// An ExitError is an error with an exit code. If the error is nil, nothing is printed.
type ExitError struct {
	Code int
	Err  error
}

func (e ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e ExitError) Unwrap() error { return e.Err }

// ExitWith returns an error with an exit code.
func ExitWith(code int, err error) error { return ExitError{code, err} }

// CodeOf returns the exit code of a command that ends with the given error.
func CodeOf(err error) int {
	var exit ExitError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &exit):
		return exit.Code
	}
	return ExitFailed
}

// Usage returns the error of a command that is used in a wrong way.
func Usage(format string, args ...any) error {
	return ExitWith(ExitUsage, fmt.Errorf(format, args...))
}

// IsUnreachable reports whether an error is that of an agent that cannot be reached or has disconnected.
func IsUnreachable(err error) bool {
	return CodeOf(err) == ExitUnreachable
}
