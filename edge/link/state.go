package link

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/keys"
)

// Phase is where the link stands.
type Phase string

// The phases; the package comment draws how they follow each other.
const (
	Standalone Phase = "Standalone" // there is no API server for this node
	Connecting Phase = "Connecting" // it is being found out
	Up         Phase = "Up"         // the server answers
	Down       Phase = "Down"       // it does not, or not to this node
)

// Reasons of a State that is not Up.
const (
	ReasonUnreachable        = "Unreachable"              // no answer, or no way
	ReasonNotReady           = "ServerNotReady"           // it answers that it cannot
	ReasonNotServer          = "NotAPIServer"             // what answers is something else, such as a captive portal
	ReasonServerCertificate  = "ServerCertificateInvalid" // who answers is not trusted
	ReasonUnauthorized       = "Unauthorized"             // the credentials are refused
	ReasonCertificateExpired = "ClientCertificateExpired" // and there is none to get another with
	ReasonNoCredentials      = "NoCredentials"            // no usable kubeconfig
	ReasonBootstrapping      = "Bootstrapping"            // a certificate is asked for
	ReasonDuplicate          = keys.DuplicateCondition    // another machine has the name of this node
)

// State is how the link stands.
type State struct {
	Phase Phase
	Since time.Time // by the machine's clock, with its monotonic reading
	// Lasts is Since for a person: a suspicion that the next answer settled does not
	// begin the link anew.
	Lasts   time.Time
	Reason  string // one of the Reasons; empty when Up or Standalone
	Message string // for a person
}

// patience is how long a request waits for a state that is being found out.
const patience = 2 * time.Second

type states struct {
	mu    sync.Mutex
	state State
	up    time.Time     // since when the link was up before it was suspected; zero: it was not
	moved chan struct{} // closed when state is replaced
	subs  []chan struct{}
}

func newStates() *states {
	return &states{state: State{Phase: Connecting, Reason: ReasonUnreachable, Message: "the server has not been asked yet"}, moved: make(chan struct{})}
}

func (s *states) get() (State, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.moved
}

// set replaces the state; Since is of the phase.
func (s *states) set(next State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next.Since, next.Lasts = s.state.Since, s.state.Lasts
	if next == s.state && !next.Since.IsZero() {
		return
	}
	if next.Phase != s.state.Phase || next.Since.IsZero() {
		next.Since = time.Now()
		next.Lasts = next.Since
		switch {
		case next.Phase == Up && !s.up.IsZero():
			next.Lasts = s.up
		case next.Phase == Connecting && s.state.Phase == Up:
			s.up = s.state.Lasts
		case next.Phase == Down:
			s.up = time.Time{}
		}
	}
	s.state = next
	close(s.moved)
	s.moved = make(chan struct{})
	for _, sub := range s.subs {
		poke(sub)
	}
}

func (s *states) subscribe() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := make(chan struct{}, 1)
	s.subs = append(s.subs, sub)
	return sub
}

// admit lets a request leave while the link is up, and waits for a moment while that
// is being found out.
func (s *states) admit(ctx context.Context) error {
	for {
		state, moved := s.get()
		if state.Phase == Up {
			return nil
		}
		left := patience
		if !state.Since.IsZero() { // else the link does not run yet
			left -= time.Since(state.Since)
		}
		if state.Phase != Connecting || left <= 0 {
			return fmt.Errorf("%w: %s: %s", kube.ErrNoLink, state.Reason, state.Message)
		}
		wait := time.NewTimer(left)
		select {
		case <-moved:
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return ctx.Err()
		}
		wait.Stop()
	}
}
