package server

import (
	"fmt"
	"sync"
	"time"
)

const (
	// volumeTimeout limits the calls for the mounts of one container. It is longer than the kernel usually needs to reconnect to a server.
	volumeTimeout = 30 * time.Second
	// maxSilent is the maximum number of paths whose calls have not ended in time. Each of these calls occupies a thread.
	maxSilent = 256
)

// volumeCalls runs calls that may touch a volume. If the server or the FUSE daemon of a volume does not respond, such a call blocks in the
// kernel, possibly without end. The caller then no longer waits for it.
//
//	call --goroutine--> openat2, stat, mount ... --in time--> result
//	  '--volumeTimeout--> error; the path is silent until the goroutine ends, which undoes its work
type volumeCalls struct {
	timeout time.Duration

	mu     sync.Mutex
	silent map[string]bool // paths of calls that have not ended in time
}

func newVolumeCalls() volumeCalls {
	return volumeCalls{timeout: volumeTimeout, silent: map[string]bool{}}
}

// A volumeCall is one running call.
type volumeCall struct {
	undo   func() // set if the call was successful
	err    error
	path   string // path of the step that is in progress; volumeCalls.mu guards it, and it does not change after gaveUp
	gaveUp bool   // whether nobody waits for the call any more; volumeCalls.mu guards it
	ended  chan struct{}
}

// call runs f, which mounts copies and returns a function that removes them. The function f calls begin before each step that may block. If
// f does not return in time, call returns an error that names the path of the step. Until f has returned, begin returns an error for that
// path.
func (v *volumeCalls) call(f func(begin func(path string) error) (undo func(), err error)) (undo func(), err error) {
	c := &volumeCall{ended: make(chan struct{})}
	go func() {
		c.undo, c.err = f(func(path string) error { return v.begin(c, path) })
		v.end(c)
	}()
	timeout := time.NewTimer(v.timeout)
	defer timeout.Stop()
	select {
	case <-c.ended:
	case <-timeout.C:
		if v.giveUp(c) {
			return nil, errSilent(c.path)
		}
	}
	return c.undo, c.err
}

func errSilent(path string) error { return fmt.Errorf("%s does not respond", path) }

// begin begins a step of a call. It returns an error if the path is silent, if too many paths are, or if nobody waits for the call.
func (v *volumeCalls) begin(c *volumeCall, path string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.silent); n >= maxSilent {
		return fmt.Errorf("%d volumes do not respond", n)
	}
	if v.silent[path] || c.gaveUp {
		return errSilent(path)
	}
	c.path = path
	return nil
}

// giveUp marks the path of a call as silent. It returns false if the call has just ended.
func (v *volumeCalls) giveUp(c *volumeCall) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	select {
	case <-c.ended:
		return false
	default:
	}
	c.gaveUp, v.silent[c.path] = true, true
	return true
}

// end ends a call. If nobody waits for the call any more, end undoes it.
func (v *volumeCalls) end(c *volumeCall) {
	v.mu.Lock()
	close(c.ended)
	gaveUp := c.gaveUp
	if gaveUp {
		delete(v.silent, c.path)
	}
	v.mu.Unlock()
	if gaveUp && c.undo != nil {
		c.undo()
	}
}
