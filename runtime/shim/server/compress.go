package server

import (
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// A compressor compresses rotated logs. It compresses one file at a time for all containers of the
// shim, and pauses between two files. So the log output of a container costs other pods only a part
// of one core.
type compressor struct {
	compress func(root, name string) // compresses a file below root and returns when this is done

	mu      sync.Mutex
	waiting []job // jobs in the order in which they are done
	now     job   // the file that is being compressed; its name is empty if there is none
	works   bool  // whether the goroutine work exists
}

// A job is a rotated file of the log at path log.
type job struct{ log, root, name string }

// pauseFactor is the length of the pause, as a multiple of the time that the last file took.
const pauseFactor = 4

// take queues the rotated files of a log. They replace earlier jobs of that log. If a file of the
// log is being compressed at this moment, the log is rotated faster than it is compressed. Then
// nothing is queued, and the next rotation tries again.
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

// work compresses the first queued file, and schedules its next call after a pause.
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
	time.AfterFunc(pauseFactor*time.Since(begin), c.work)
}

// compress compresses a rotated log in a separate process with the lowest priority. Its memory is
// freed when the process ends.
func (s *Server) compress(root, name string) {
	// Do not use the path of the program, because a newer program may have replaced it.
	cmd := exec.Command("/proc/self/exe", "compress", root, name)
	if err := s.reaper.command(cmd, (*exec.Cmd).Start, nil); err != nil {
		s.log.Warn("a rotated log could not be compressed", "path", filepath.Join(root, name), "error", err)
	}
}
