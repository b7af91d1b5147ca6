package mounts

import (
	"strings"
	"sync"

	"github.com/moby/sys/mountinfo"
)

// mountTable returns a mount table that was read after the call began. The table is long on a node with many pods.
// Therefore all callers that wait at the beginning of a read share its result. The caller must not modify the result.
func mountTable() ([]*mountinfo.Info, error) { return mountReadings.read() }

// FindTopmost returns the topmost mount at the mount point path, or nil if there is none. It reads only the
// mount table and does not access the file system, which might not respond.
func FindTopmost(path string) (*mountinfo.Info, error) {
	return newestMount(func(m *mountinfo.Info) bool { return m.Mountpoint == path })
}

// MountOf returns the mount that contains path, which must not contain symlinks. Like FindTopmost, it does
// not access the file system.
func MountOf(path string) (in *mountinfo.Info, err error) {
	deepest := 0
	return newestMount(func(m *mountinfo.Info) bool {
		in := m.Mountpoint == "/" || m.Mountpoint == path || strings.HasPrefix(path, m.Mountpoint+"/")
		if len(m.Mountpoint) < deepest || !in {
			return false
		}
		deepest = len(m.Mountpoint)
		return true
	})
}

// newestMount returns the newest mount that the function match accepts, or nil if there is none.
func newestMount(match func(*mountinfo.Info) bool) (found *mountinfo.Info, err error) {
	all, err := mountTable()
	for _, m := range all {
		if match(m) {
			found = m
		}
	}
	return found, err
}

var mountReadings = newSharedReading(func() ([]*mountinfo.Info, error) { return mountinfo.GetMounts(nil) })

// A sharedReading reads the mount table once for all waiting callers. There is at most one read at
// a time.
type sharedReading struct {
	readMounts func() ([]*mountinfo.Info, error)
	readTurn   chan struct{} // full during a read

	mu   sync.Mutex
	next *reading // read that has not begun; nil if no caller is waiting
}

func newSharedReading(from func() ([]*mountinfo.Info, error)) *sharedReading {
	return &sharedReading{readMounts: from, readTurn: make(chan struct{}, 1)}
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
	s.readTurn <- struct{}{}
	defer func() { <-s.readTurn }()
	s.mu.Lock()
	s.next = nil // later callers must not share a read that has begun
	s.mu.Unlock()
	defer close(r.done)
	r.all, r.err = s.readMounts()
	return r.all, r.err
}
