package mounts

import (
	"sync"

	"github.com/moby/sys/mountinfo"
)

// mounted is what is mounted, as of a moment after the call. The table of a node with many
// pods is long: those who ask while somebody reads it share the next reading.
func mounted() ([]*mountinfo.Info, error) { return readings.read() }

var readings = newSharedReading(func() ([]*mountinfo.Info, error) { return mountinfo.GetMounts(nil) })

// sharedReading reads something for all who wait, one reading at a time.
type sharedReading struct {
	from func() ([]*mountinfo.Info, error)
	turn chan struct{} // full while somebody reads

	mu   sync.Mutex
	next *reading // it has not begun; nil: nobody waits
}

func newSharedReading(from func() ([]*mountinfo.Info, error)) *sharedReading {
	return &sharedReading{from: from, turn: make(chan struct{}, 1)}
}

type reading struct {
	done chan struct{} // closed when what follows is there
	all  []*mountinfo.Info
	err  error
}

func (s *sharedReading) read() ([]*mountinfo.Info, error) {
	s.mu.Lock()
	if r := s.next; r != nil {
		s.mu.Unlock()
		<-r.done
		return r.all, r.err
	}
	r := &reading{done: make(chan struct{})}
	s.next = r
	s.mu.Unlock()
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.mu.Lock()
	s.next = nil // who comes from now on may have changed what is read
	s.mu.Unlock()
	defer close(r.done)
	r.all, r.err = s.from()
	return r.all, r.err
}
