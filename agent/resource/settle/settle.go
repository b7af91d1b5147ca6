package settle

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// quiet is how long no pod may have changed before memory is returned.
	quiet = 3 * time.Second
	// seldom is the minimum interval between two returns, because mapping needed pages again takes
	// some ten milliseconds of CPU.
	seldom = 15 * time.Second
	// aftermath is how long work continues after pods have started: sending events and statuses,
	// filling caches. Memory is returned again afterwards.
	aftermath = 12 * time.Second
	// soon is how long a short task may run after it called Touched.
	soon = time.Second
	// restingGC and busyGC are the values of GOGC while the node rests and while pods
	// change. Garbage that lies between objects that stay leaves partly filled spans
	// behind, which no collection gives back: with 150 instead of 70, starting 30 pods
	// leaves 2 MiB more of them for as long as the agent runs.
	restingGC, busyGC = 50, 70
)

// Config configures New.
type Config struct {
	Changed func() <-chan struct{} // closed at the next change of a pod
	Log     *slog.Logger
}

// A Settler returns memory to the system.
type Settler struct {
	changed func() <-chan struct{}
	touched chan struct{} // capacity 1
	free    func() error
	forget  func() error
	busy    func() // called when pods change again
	failed  func(error)
}

// New returns a Settler. It starts nothing.
func New(c Config) *Settler {
	return &Settler{
		changed: c.Changed, touched: make(chan struct{}, 1), free: freeMemory, forget: forgetPages, busy: Busy,
		failed: func(err error) { c.Log.Debug("cannot return memory", "error", err) },
	}
}

// Busy lets garbage grow because pods are about to change.
func Busy() { setGCPercent(busyGC) }

// Touched reports that the agent ran a short periodic task, such as a lease renewal. Such a task
// touches some hundred places of the program, and the kernel maps 64 KiB around each: mapping them
// again costs half a millisecond, keeping them a dozen MiB.
func (s *Settler) Touched() {
	select {
	case s.touched <- struct{}{}:
	default:
	}
}

// Run returns memory whenever no pod changes, until ctx ends.
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
		freed = s.rest(ctx, next)
		if ctx.Err() != nil {
			return nil
		}
		s.busy()
	}
}

// rest returns memory until a pod changes or ctx ends. It returns the time of the last return of
// heap memory.
func (s *Settler) rest(ctx context.Context, next <-chan struct{}) (freed time.Time) {
	s.attempt(s.free)
	freed = time.Now()
	again := time.NewTimer(aftermath)
	defer again.Stop()
	var ended <-chan time.Time // a short task ended
	for {
		select {
		case <-ctx.Done():
			return freed
		case <-next:
			return freed
		case <-again.C:
			s.attempt(s.free)
			freed = time.Now()
		case <-s.touched:
			ended = time.After(soon)
		case <-ended:
			s.attempt(s.forget)
		}
	}
}

func (s *Settler) attempt(give func() error) {
	if err := give(); err != nil {
		s.failed(err)
	}
}

// setGCPercent sets GOGC unless the administrator has.
func setGCPercent(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// freeMemory returns unused heap memory and the program's pages.
func freeMemory() error {
	setGCPercent(restingGC)
	runtime.GC() // shrinks pools and deep stacks; the next call frees their memory
	debug.FreeOSMemory()
	return forgetPages()
}

// forgetPages unmaps the pages of this program's file. They stay in the page cache, so the kernel
// maps them again without reading.
func forgetPages() error { return advise(unix.MADV_DONTNEED) }

// advise sets the kernel's advice for the pages of this program's file.
func advise(how uintptr) error {
	all, err := programMappings()
	if err != nil {
		return err
	}
	for _, m := range all {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, how); errno != 0 {
			return fmt.Errorf("advise %d on %x-%x: %w", how, m.from, m.to, errno)
		}
	}
	return nil
}

// A mapping is a mapped range of this program's file.
type mapping struct{ from, to uintptr }

// programMappings returns the read-only mappings; a modified page would be lost. They do not change
// while the process lives.
var programMappings = sync.OnceValues(func() (all []mapping, err error) {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		var m mapping
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &m.from, &m.to, &mode); err != nil {
			return nil, fmt.Errorf("/proc/self/maps: %q: %w", line, err)
		}
		if strings.HasSuffix(line, " "+exe) && mode[1] != 'w' {
			all = append(all, m)
		}
	}
	return all, lines.Err()
})
