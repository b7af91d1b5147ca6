package worker

import (
	"errors"
	"fmt"
	"time"
)

// A Problem is why an action failed, with the word that the kubelet has for it.
type Problem struct {
	Reason string
	Retry  time.Time // not again before; zero: as the plan has it
	Err    error
}

func (p *Problem) Error() string { return p.Err.Error() }

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Err }

// A reasoned error of a hook has a reason of its own, in a kubelet's words.
type reasoned interface {
	error
	Reason() string
}

// ofHook is the problem of a hook's error: with its reason, if it has one.
func ofHook(reason, format string, err error) error {
	if own, ok := errors.AsType[reasoned](err); ok {
		return &Problem{Reason: own.Reason(), Err: err}
	}
	return problem(reason, format, err)
}

func problem(reason, format string, args ...any) error {
	return &Problem{Reason: reason, Err: fmt.Errorf(format, args...)}
}
