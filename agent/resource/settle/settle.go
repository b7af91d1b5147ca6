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
	// quiet is how long no pod may have changed before memory is given back: what
	// starting pods needed is not needed by a node that only keeps them.
	quiet = 3 * time.Second
	// seldom is the least time between two such times, since the pages that are
	// needed after all have to be found again: some ten milliseconds of CPU.
	seldom = 15 * time.Second
	// aftermath is how long what follows from the start of pods may take: events and
	// statuses are sent, caches filled. Then memory is given back once more.
	aftermath = 12 * time.Second
	// soon is how long a short task may go on after it called Touched.
	soon = time.Second
	// restingGC and busyGC are the values of GOGC while the node rests and while pods
	// change. Garbage that lies between objects that stay leaves partly filled spans
	// behind, which no collection gives back: with 150 instead of 70, starting 30 pods
	// leaves 2 MiB more of them for as long as the agent runs.
	restingGC, busyGC = 50, 70
)

// Config is what New needs.
type Config struct {
	Changed func() <-chan struct{} // closed at the next change of a pod
	Log     *slog.Logger
}

// A Settler gives memory back.
type Settler struct {
	changed func() <-chan struct{}
	touched chan struct{} // capacity 1
	free    func() error
	forget  func() error
	busy    func() // pods change again
	failed  func(error)
}

// New starts nothing.
func New(c Config) *Settler {
	return &Settler{
		changed: c.Changed, touched: make(chan struct{}, 1), free: freeMemory, forget: forgetPages, busy: Busy,
		failed: func(err error) { c.Log.Debug("memory is not given back", "error", err) },
	}
}

// Busy lets garbage grow: pods are about to change.
func Busy() { garbage(busyGC) }

// Touched says that the agent did something short that it does again and again, such
// as the renewal of its lease. Each touches some hundred places of the program, and the
// kernel maps 64 KiB around each of them: mapping them anew costs half a millisecond,
// keeping them a dozen MiB.
func (s *Settler) Touched() {
	select {
	case s.touched <- struct{}{}:
	default:
	}
}

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
		if freed = s.rest(ctx, next); ctx.Err() != nil {
			return nil
		}
		s.busy()
	}
}

// rest gives memory back until a pod changes or ctx ends, and says when it did last.
func (s *Settler) rest(ctx context.Context, next <-chan struct{}) (freed time.Time) {
	s.try(s.free)
	freed = time.Now()
	again := time.NewTimer(aftermath)
	defer again.Stop()
	var ended <-chan time.Time // a short task has
	for {
		select {
		case <-ctx.Done():
			return freed
		case <-next:
			return freed
		case <-again.C:
			s.try(s.free)
			freed = time.Now()
		case <-s.touched:
			ended = time.After(soon)
		case <-ended:
			s.try(s.forget)
		}
	}
}

func (s *Settler) try(give func() error) {
	if err := give(); err != nil {
		s.failed(err)
	}
}

// garbage sets how much garbage there may be, unless the administrator has.
func garbage(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// freeMemory returns what the heap does not use, and the program's pages.
func freeMemory() error {
	garbage(restingGC)
	runtime.GC() // makes pools and deep stacks smaller; the next frees what they held
	debug.FreeOSMemory()
	return forgetPages()
}

// forgetPages forgets the pages of this program's file. Those that are needed again are
// still in the page cache, so the kernel maps them without reading.
func forgetPages() error { return advise(unix.MADV_DONTNEED) }

// advise says to the kernel how the pages of this program's file are used.
func advise(how uintptr) error {
	all, err := program()
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

// A mapping is a part of this program's file in memory.
type mapping struct{ from, to uintptr }

// program lists the mappings that nobody can have changed: a page that was written would
// be lost. They stay as they are while the process lives.
var program = sync.OnceValues(func() (all []mapping, err error) {
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
