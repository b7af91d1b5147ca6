package hostcommand

import (
	"errors"
	"fmt"
	"io"
)

// Exit codes, for scripts.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
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

// Usage returns the error of a command that is used in a wrong way.
func Usage(err error) error { return ExitError{ExitUsage, err} }

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

// Report prints the error of a command, if there is one, and returns the exit code.
func Report(stderr io.Writer, command string, err error) int {
	if exit := (ExitError{}); err != nil && (!errors.As(err, &exit) || exit.Err != nil) {
		fmt.Fprintf(stderr, "islet: %s: %v\n", command, err)
	}
	return CodeOf(err)
}
