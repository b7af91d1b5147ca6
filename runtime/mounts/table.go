package mounts

import (
	"strings"
	"sync"

	"github.com/moby/sys/mountinfo"
)

// mounted is what is mounted, as of a moment after the call. The table of a node with many
// pods is long: those who ask while somebody reads it share the next reading, and change nothing.
func mounted() ([]*mountinfo.Info, error) { return readings.read() }

// On gives what is mounted at a path itself, the uppermost; nil: nothing. It reads the table and
// asks no file system, which might not answer.
func On(path string) (*mountinfo.Info, error) {
	return last(func(m *mountinfo.Info) bool { return m.Mountpoint == path })
}

// Around gives the mount that a path without symlinks is in, as On does.
func Around(path string) (in *mountinfo.Info, err error) {
	deepest := 0
	return last(func(m *mountinfo.Info) bool {
		if len(m.Mountpoint) < deepest || m.Mountpoint != "/" && m.Mountpoint != path && !strings.HasPrefix(path, m.Mountpoint+"/") {
			return false
		}
		deepest = len(m.Mountpoint)
		return true
	})
}

// last gives the last mount, of the newest, for which is holds; nil: there is none.
func last(is func(*mountinfo.Info) bool) (found *mountinfo.Info, err error) {
	all, err := mounted()
	for _, m := range all {
		if is(m) {
			found = m
		}
	}
	return found, err
}

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
