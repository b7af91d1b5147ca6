package cni

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containernetworking/cni/libcni"
)

const (
	// statusTime is the timeout of the STATUS command.
	statusTime = 10 * time.Second
	// statusFresh is the time for which a successful status is cached, because each STATUS command executes plugins.
	statusFresh = 30 * time.Second
	// statusSlow is the duration from which a STATUS command that failed is slow. Its error is then cached for as long as the command took,
	// so that callers do not wait for one slow command after the other. The error of a fast command is not cached.
	statusSlow = 3 * time.Second
)

// statusCache contains the result of the last STATUS command. At most one command runs for a list, however many callers wait for it.
type statusCache struct {
	mu         sync.Mutex // never held while plugins run
	list       *libcni.NetworkConfigList
	err        error
	validUntil time.Time
	call       *statusCall // the running command, or nil
}

// A statusCall is a STATUS command that is running or has ended.
type statusCall struct {
	list  *libcni.NetworkConfigList
	ended chan struct{}
	err   error // valid when ended is closed
}

// get returns the cached status of a list, or runs the function status, which must return after some time. If ctx ends first, get returns
// its error, and the command continues for the other callers.
func (s *statusCache) get(ctx context.Context, list *libcni.NetworkConfigList, status func() error) error {
	s.mu.Lock()
	if s.list == list && time.Now().Before(s.validUntil) {
		defer s.mu.Unlock()
		return s.err
	}
	c := s.call
	if c == nil || c.list != list {
		c = &statusCall{list: list, ended: make(chan struct{})}
		s.call = c
		go s.run(c, status)
	}
	s.mu.Unlock()
	select {
	case <-c.ended:
		return c.err
	case <-ctx.Done():
		return fmt.Errorf("CNI network %s: its plugins have not reported their status: %w", list.Name, ctx.Err())
	}
}

func (s *statusCache) run(c *statusCall, status func() error) {
	began := time.Now()
	err := status()
	now := time.Now()
	valid := statusFresh
	if err != nil {
		valid = min(now.Sub(began), statusTime)
		if valid < statusSlow {
			valid = 0
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.err = err
	close(c.ended)
	if s.call == c { // the configuration has not changed
		s.call, s.list, s.err, s.validUntil = nil, c.list, err, now.Add(valid)
	}
}
