package worker

import (
	"errors"
	"fmt"
	"time"
)

// A Problem is the error of an action, with the reason that a kubelet reports for it.
type Problem struct {
	Reason string
	Retry  time.Time // no retry before this time; if it is zero, the plan decides when to retry
	Err    error
}

// Error implements error.
func (p *Problem) Error() string { return p.Err.Error() }

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Err }

// A reasonError is an error of a hook that has a kubelet's reason.
type reasonError interface {
	error
	Reason() string
}

// hookProblem returns a Problem for the error of a hook. If the error is a reasonError, the Problem has the
// error's reason and the unchanged error. Otherwise it has the given reason and format.
func hookProblem(reason, format string, err error) error {
	if own, ok := errors.AsType[reasonError](err); ok {
		return &Problem{Reason: own.Reason(), Err: err}
	}
	return newProblem(reason, format, err)
}

func newProblem(reason, format string, args ...any) error {
	return &Problem{Reason: reason, Err: fmt.Errorf(format, args...)}
}
