// Package settle gives memory back when the node has come to rest. It has no ticker:
// a node on which nothing changes does nothing.
//
//	pods change --> Run --(quiet for a while)--> free memory, collect garbage early
//	                    <--(pods change again)-- let garbage grow
package settle

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// quiet is how long no pod may have changed before memory is given back: what
	// starting pods needed is not needed by a node that only keeps them.
	quiet = 3 * time.Second
	// seldom is the least time between two such times, since the pages that are
	// needed after all have to be found again: some ten milliseconds of CPU.
	seldom = 15 * time.Second
	// How much garbage there may be, in percent of what is in use: a small heap
	// matters more than CPU time, but not while pods change.
	restingGC, busyGC = 50, 150
)

// Config is what New needs.
type Config struct {
	Changed func() <-chan struct{} // closed at the next change of a pod
	Log     *slog.Logger
}

// A Settler gives memory back.
type Settler struct {
	changed func() <-chan struct{}
	free    func() error
	busy    func() // pods change again
	failed  func(error)
}

// New starts nothing.
func New(c Config) *Settler {
	return &Settler{changed: c.Changed, free: freeMemory, busy: Busy, failed: func(err error) { c.Log.Debug("memory is not given back", "error", err) }}
}

// Busy lets garbage grow: pods are about to change.
func Busy() { garbage(busyGC) }

// Run waits for changes until ctx ends.
func (s *Settler) Run(ctx context.Context) error {
	var freed time.Time // zero: never
	for {
		next := s.changed()
		rest := time.NewTimer(max(quiet, seldom-time.Since(freed)))
		select {
		case <-ctx.Done():
			return nil
		case <-next:
			continue
		case <-rest.C:
		}
		if err := s.free(); err != nil {
			s.failed(err)
		}
		freed = time.Now()
		select {
		case <-ctx.Done():
			return nil
		case <-next:
			s.busy()
		}
	}
}

// garbage sets how much garbage there may be, unless the administrator has.
func garbage(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// freeMemory returns what the heap does not use, and forgets the pages of this
// program's file: most were touched only at the start. Those that are needed again
// are still in the page cache, so the kernel maps them without reading.
func freeMemory() error {
	garbage(restingGC)
	debug.FreeOSMemory()
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		var from, to uintptr
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil {
			return fmt.Errorf("/proc/self/maps: %q: %w", line, err)
		}
		// Only what nobody can have changed: a page that was written would be lost.
		if !strings.HasSuffix(line, " "+exe) || mode[1] == 'w' {
			continue
		}
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, uintptr(unix.MADV_DONTNEED))
		if errno != 0 {
			return fmt.Errorf("give back %s: %w", line, errno)
		}
	}
	return nil
}
