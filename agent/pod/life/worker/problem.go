package worker

import (
	"errors"
	"fmt"
	"time"
)

// A Problem is the error of an action, with the reason that a kubelet reports for it.
type Problem struct {
	Reason string
	Retry  time.Time // the action is not repeated before; zero: the plan decides
	Err    error
}

// Error implements error.
func (p *Problem) Error() string { return p.Err.Error() }

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Err }

// A reasoned is an error of a hook that has its own reason, in a kubelet's words.
type reasoned interface {
	error
	Reason() string
}

// hookProblem returns the problem for a hook's error, with the error's own reason if it has one.
func hookProblem(reason, format string, err error) error {
	if own, ok := errors.AsType[reasoned](err); ok {
		return &Problem{Reason: own.Reason(), Err: err}
	}
	return problem(reason, format, err)
}

func problem(reason, format string, args ...any) error {
	return &Problem{Reason: reason, Err: fmt.Errorf(format, args...)}
}
