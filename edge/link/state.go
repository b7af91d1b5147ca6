package link

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/keys"
)

// Phase describes whether the link can be used.
type Phase string

// The phases. The package comment has a state diagram.
const (
	Standalone Phase = "Standalone" // the node has no API server
	Connecting Phase = "Connecting" // the state is not known yet
	Up         Phase = "Up"         // the server answers
	Down       Phase = "Down"       // the server does not answer, or rejects this node
)

// Reasons of a State that is not Up.
const (
	ReasonUnreachable       = "Unreachable"              // there was no answer, or no route
	ReasonNotReady          = "ServerNotReady"           // the server answers with an error
	ReasonNotServer         = "NotAPIServer"             // something other than an API server answered, such as a captive portal
	ReasonServerCertificate = "ServerCertificateInvalid" // the server's certificate is not trusted
	ReasonUnauthorized      = "Unauthorized"             // the server rejects the credentials
	// the client certificate has expired, and no credentials are available for requesting a new one
	ReasonCertificateExpired = "ClientCertificateExpired"
	ReasonNoCredentials      = "NoCredentials"         // there is no usable kubeconfig
	ReasonBootstrapping      = "Bootstrapping"         // a certificate was requested
	ReasonDuplicate          = keys.DuplicateCondition // another machine has the name of this node
)

// State is the state of the link.
type State struct {
	Phase Phase
	Since time.Time // start of the phase, by the machine's clock, with the monotonic time
	// DisplaySince is the start of the phase for display. If a probe shows that a suspicion was wrong, DisplaySince stays the same.
	DisplaySince time.Time
	Reason       string // one of the Reasons; empty in the phases Up and Standalone
	Message      string // for display
}

// connectTimeout is the maximum time that a request waits in the phase Connecting.
const connectTimeout = 2 * time.Second

type states struct {
	mu           sync.Mutex
	state        State
	upSince      time.Time     // DisplaySince of the phase Up before the current suspicion; zero if the link was not up
	stateChanged chan struct{} // closed when the state is replaced
	subs         []chan struct{}
}

func newStates() *states {
	first := State{Phase: Connecting, Reason: ReasonUnreachable, Message: "no request was sent to the server yet"}
	return &states{state: first, stateChanged: make(chan struct{})}
}

func (s *states) get() (State, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.stateChanged
}

// set replaces the state. If the phase stays the same, Since and DisplaySince are kept.
func (s *states) set(next State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next.Since, next.DisplaySince = s.state.Since, s.state.DisplaySince
	if next == s.state && !next.Since.IsZero() {
		return
	}
	if next.Phase != s.state.Phase || next.Since.IsZero() {
		next.Since = time.Now()
		next.DisplaySince = next.Since
		switch {
		case next.Phase == Up && !s.upSince.IsZero():
			next.DisplaySince = s.upSince
		case next.Phase == Connecting && s.state.Phase == Up:
			s.upSince = s.state.DisplaySince
		case next.Phase == Down:
			s.upSince = time.Time{}
		}
	}
	s.state = next
	close(s.stateChanged)
	s.stateChanged = make(chan struct{})
	for _, sub := range s.subs {
		signalChannel(sub)
	}
}

func (s *states) subscribe() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := make(chan struct{}, 1)
	s.subs = append(s.subs, sub)
	return sub
}

// waitUntilUp returns nil while the link is up. In the phase Connecting it waits for at most connectTimeout. In all other phases it
// returns an error.
func (s *states) waitUntilUp(ctx context.Context) error {
	for {
		state, moved := s.get()
		if state.Phase == Up {
			return nil
		}
		left := connectTimeout
		if !state.Since.IsZero() { // zero before Run
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
