package cni

import (
	"sync"
	"time"

	"github.com/containernetworking/cni/libcni"
)

const (
	// statusTime is the timeout of the STATUS command.
	statusTime = 10 * time.Second
	// statusFresh is the time for which a successful status is cached, because each STATUS command executes plugins.
	statusFresh = 30 * time.Second
)

// statusCache records when the last STATUS command for a list succeeded.
type statusCache struct {
	mu         sync.Mutex
	list       *libcni.NetworkConfigList
	validUntil time.Time
}

func (s *statusCache) get(list *libcni.NetworkConfigList, status func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == list && time.Since(s.validUntil) < statusFresh {
		return nil
	}
	if err := status(); err != nil {
		s.list = nil
		return err
	}
	s.list, s.validUntil = list, time.Now()
	return nil
}
