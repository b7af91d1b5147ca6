package mounts

import (
	"strings"
	"sync"

	"github.com/moby/sys/mountinfo"
)

// mountTable returns the mount table, which is read after the call has begun. The table of a node with
// many pods is long. So callers that arrive during a read share the next read. They must not modify
// the result.
func mountTable() ([]*mountinfo.Info, error) { return readings.read() }

// On returns the topmost mount at exactly this path, or nil if there is none. It reads the mount
// table. It does not access the file system, which might not respond.
func On(path string) (*mountinfo.Info, error) {
	return newest(func(m *mountinfo.Info) bool { return m.Mountpoint == path })
}

// MountOf returns the mount that contains a path. The path must have no symlinks. Like On, it does
// not access the file system.
func MountOf(path string) (in *mountinfo.Info, err error) {
	deepest := 0
	return newest(func(m *mountinfo.Info) bool {
		in := m.Mountpoint == "/" || m.Mountpoint == path || strings.HasPrefix(path, m.Mountpoint+"/")
		if len(m.Mountpoint) < deepest || !in {
			return false
		}
		deepest = len(m.Mountpoint)
		return true
	})
}

// newest returns the newest mount for which is returns true, or nil if there is none.
func newest(is func(*mountinfo.Info) bool) (found *mountinfo.Info, err error) {
	all, err := mountTable()
	for _, m := range all {
		if is(m) {
			found = m
		}
	}
	return found, err
}

var readings = newSharedReading(func() ([]*mountinfo.Info, error) { return mountinfo.GetMounts(nil) })

// A sharedReading reads the mount table for all waiting callers. There is only one read at a time.
type sharedReading struct {
	from func() ([]*mountinfo.Info, error)
	turn chan struct{} // full during a read

	mu   sync.Mutex
	next *reading // a read that has not begun, or nil if no caller waits
}

func newSharedReading(from func() ([]*mountinfo.Info, error)) *sharedReading {
	return &sharedReading{from: from, turn: make(chan struct{}, 1)}
}

type reading struct {
	done chan struct{} // closed when the fields below are set
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
	s.next = nil // a later caller may have changed the mount table after the begin of this read
	s.mu.Unlock()
	defer close(r.done)
	r.all, r.err = s.from()
	return r.all, r.err
}
