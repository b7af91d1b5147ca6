package worker

import (
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

func problem(reason, format string, args ...any) error {
	return &Problem{Reason: reason, Err: fmt.Errorf(format, args...)}
}
