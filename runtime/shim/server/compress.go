package server

import (
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// A compressor compresses rotated logs, one file at a time for all containers of the shim, and
// pauses between two files. So a container's log output costs other pods no more than part of one
// core.
type compressor struct {
	compress func(root, name string) // compresses a file below root, and returns when it is done

	mu      sync.Mutex
	waiting []job // in this order
	now     job   // the file being compressed; empty name: none
	works   bool  // the goroutine work exists
}

// A job is a rotated file of the log at path log.
type job struct{ log, root, name string }

// rest is the length of the pause as a multiple of the time that the last file took.
const rest = 4

// take queues the rotated files of a log and replaces earlier jobs of that log. If a file of the
// log is being compressed right now, the log is rotated faster than it is compressed: nothing is
// queued, and the next rotation tries again.
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

// work compresses the first queued file, and schedules itself again after a pause.
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

// compress compresses a rotated log in a separate process with the lowest priority, whose memory is
// freed when it ends.
func (s *Server) compress(root, name string) {
	// Not the program's path: a newer program may have replaced it.
	cmd := exec.Command("/proc/self/exe", "compress", root, name)
	if err := s.reaper.command(cmd, (*exec.Cmd).Start, nil); err != nil {
		s.log.Warn("a rotated log could not be compressed", "path", filepath.Join(root, name), "error", err)
	}
}
