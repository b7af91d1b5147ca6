package server

import (
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// A compressor makes rotated logs smaller, one file at a time for all containers of the shim,
// and rests between two of them: what a container writes costs the pods beside it no more than
// a part of one core.
type compressor struct {
	compress func(root, name string) // compresses a file below root, and returns when that has ended

	mu      sync.Mutex
	waiting []job // in the order in which they are done
	now     job   // is being compressed; without a name: none is
	works   bool  // work runs, or is to after a rest
}

// A job is a rotated file of the log at a path.
type job struct{ log, root, name string }

// rest is how many times as long as a file took the next one waits at least.
const rest = 4

// take has the rotated files of a log compressed, in place of those of it that wait. If one
// of it is being compressed, the log is rotated faster than that goes: nothing of it waits
// then, and the next rotation asks again.
func (c *compressor) take(log, root string, names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = slices.DeleteFunc(c.waiting, func(j job) bool { return j.log == log })
	if c.now.log == log {
		return
	}
	for _, name := range names {
		c.waiting = append(c.waiting, job{log, root, name})
	}
	if len(c.waiting) > 0 && !c.works {
		c.works = true
		go c.work()
	}
}

// work compresses the first file that waits, and comes back after a rest if there may be more.
func (c *compressor) work() {
	c.mu.Lock()
	if len(c.waiting) == 0 {
		c.works, c.waiting = false, nil
		c.mu.Unlock()
		return
	}
	c.now = c.waiting[0]
	c.waiting = c.waiting[1:]
	j := c.now
	c.mu.Unlock()
	begin := time.Now()
	c.compress(j.root, j.name)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = job{}
	time.AfterFunc(rest*time.Since(begin), c.work)
}

// compress makes a rotated log smaller in a process of its own, whose memory goes away with
// it, and whose priority is the lowest.
func (s *Server) compress(root, name string) {
	// Not by its path: a newer program may have taken its place.
	cmd := exec.Command("/proc/self/exe", "compress", root, name)
	if err := s.reaper.command(cmd, (*exec.Cmd).Start, nil); err != nil {
		s.log.Warn("rotated log was not compressed", "path", filepath.Join(root, name), "error", err)
	}
}
