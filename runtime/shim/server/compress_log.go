package server

import (
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// A compressor compresses rotated logs. It compresses one file at a time for all containers of the
// shim, and pauses between two files. This limits the CPU time that the log of one container takes
// from other pods.
type compressor struct {
	compress func(root, name string) // compresses a file below root; blocks until done

	mu      sync.Mutex
	waiting []job // queue, first job first
	current job   // job in progress; zero if there is none
	active  bool  // whether a call of work is running or scheduled
}

// A job is a rotated file to compress. The field log is the path of its log.
type job struct{ log, root, name string }

// pauseFactor is the ratio of the pause to the time that compressing the last file took.
const pauseFactor = 4

// enqueue queues the rotated files of a log and removes earlier jobs of that log from the queue. If
// a file of the log is being compressed, enqueue queues nothing: the log grows faster than it can
// be compressed. The next rotation calls enqueue again.
func (c *compressor) enqueue(log, root string, names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = slices.DeleteFunc(c.waiting, func(j job) bool { return j.log == log })
	if c.current.log == log {
		return
	}
	for _, name := range names {
		c.waiting = append(c.waiting, job{log, root, name})
	}
	if len(c.waiting) > 0 && !c.active {
		c.active = true
		go c.compressNext()
	}
}

// compressNext compresses the first queued file, and schedules its next call after a pause.
func (c *compressor) compressNext() {
	c.mu.Lock()
	if len(c.waiting) == 0 {
		c.active, c.waiting = false, nil
		c.mu.Unlock()
		return
	}
	c.current = c.waiting[0]
	c.waiting = c.waiting[1:]
	j := c.current
	c.mu.Unlock()
	begin := time.Now()
	c.compress(j.root, j.name)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = job{}
	time.AfterFunc(pauseFactor*time.Since(begin), c.compressNext)
}

// compressLog compresses a rotated log in a separate process with the lowest priority. A separate
// process returns its memory when it ends.
func (s *Server) compressLog(root, name string) {
	// Use /proc/self/exe, because an upgrade may have removed the file of this program.
	cmd := exec.Command("/proc/self/exe", "compress", root, name)
	if err := s.reaper.runCommand(cmd, (*exec.Cmd).Start, nil); err != nil {
		s.log.Warn("a rotated log could not be compressed", "path", filepath.Join(root, name), "error", err)
	}
}
