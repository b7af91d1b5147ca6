package idlememory

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// quietTime is the time without a change of any pod after which memory is returned.
	quietTime = 3 * time.Second
	// minInterval is the minimum interval between two returns of memory. After a return, mapping the pages that are
	// needed takes some ten milliseconds of CPU time.
	minInterval = 15 * time.Second
	// settleTime is the time for which the agent has work after pods have started: it sends events and statuses and
	// fills caches. After this time, memory is returned once more.
	settleTime = 12 * time.Second
	// minGarbage is the number of bytes that must have been allocated since the last return of memory, so that the
	// repeated return after settleTime is worth its CPU time. This is not the case after the end of a single pod.
	minGarbage = 512 << 10
	// largeChange is the number of bytes that the agent must have allocated during a change of pods, so that a second garbage collection is
	// worth its CPU time. The first collection does not free the contents of pools and half of the unused stacks. The start or the end of a
	// single pod allocates fewer bytes.
	largeChange = 4 << 20
	// taskTime is the time after a call of TaskRan at which the pages of the executable are returned, unless TaskRan is called again. It
	// is shorter than 100 ms, so that this work belongs to the task's own burst of activity. With a second, each renewal of the Lease
	// woke the processor twice.
	taskTime = 50 * time.Millisecond
	// restingGC and busyGC are the values of GOGC while the node rests and while pods change. When garbage lies
	// between objects that stay in use, its collection leaves partly filled spans. Such spans are never returned to
	// the system. With 40 instead of 70, the start of 30 pods leaves 0.7 MiB less of such spans, and the start of 100 pods
	// 1.5 MiB less, for as long as the agent runs. The start of 30 pods then needs 17 collections instead of 11, which
	// take 2 to 3 % of its CPU time.
	restingGC, busyGC = 30, 40
)

// Config configures New.
type Config struct {
	Changed func() <-chan struct{} // returns a channel that is closed when a pod changes
	Log     *slog.Logger
}

// A Settler returns memory to the system while no pod changes.
type Settler struct {
	changed    func() <-chan struct{}
	taskSignal chan struct{}          // capacity 1
	free       func(twice bool) error // collects the garbage once or twice
	forget     func() error
	allocated  func() uint64 // returns the number of bytes that were ever allocated
	onBusy     func()        // called when pods change after a rest
	logFailure func(error)
}

// New returns a Settler. It starts no goroutine.
func New(c Config) *Settler {
	return &Settler{
		changed: c.Changed, taskSignal: make(chan struct{}, 1), free: freeMemory, forget: forgetPages, allocated: allocatedBytes,
		onBusy:     DelayCollections,
		logFailure: func(err error) { c.Log.Debug("cannot return memory", "error", err) },
	}
}

// DelayCollections makes garbage collections rarer, because pods are about to change.
func DelayCollections() { setGCPercent(busyGC) }

// TaskRan reports that the agent has run a short periodic task, such as a lease renewal. Such a task accesses some
// hundred places of the executable, and the kernel maps 64 KiB around each of them. Keeping these pages mapped costs
// a dozen MiB, and mapping them again takes half a millisecond.
func (s *Settler) TaskRan() {
	select {
	case s.taskSignal <- struct{}{}:
	default:
	}
}

// Run returns memory each time pods have not changed for a while, until ctx ends.
func (s *Settler) Run(ctx context.Context) error {
	var freed time.Time // zero: never
	var before uint64   // result of allocated at the time freed
	for {
		next := s.changed()
		rest := time.NewTimer(max(quietTime, minInterval-time.Since(freed)))
		select {
		case <-ctx.Done():
			return nil
		case <-next:
			continue
		case <-rest.C:
		}
		freed, before = s.returnMemory(ctx, next, before)
		if ctx.Err() != nil {
			return nil
		}
		s.onBusy()
	}
}

// returnMemory returns memory repeatedly until a pod changes or ctx ends. If almost nothing was allocated since the first
// time, it keeps the heap and returns only the pages of the executable. The parameter before is the number of bytes that were allocated
// until the last change began. The results are the time of the last return, and the number of bytes until now.
func (s *Settler) returnMemory(ctx context.Context, next <-chan struct{}, before uint64) (freed time.Time, allocated uint64) {
	large := s.allocated()-before >= largeChange
	release := func() {
		s.tryReturn(func() error { return s.free(large) })
		freed, allocated = time.Now(), s.allocated()
	}
	release()
	again := time.NewTimer(settleTime)
	defer again.Stop()
	var ended <-chan time.Time // fires taskTime after the last task
	for {
		select {
		case <-ctx.Done():
			return freed, allocated
		case <-next:
			return freed, s.allocated() // bytes that were allocated at rest do not count for the next change
		case <-again.C:
			if s.allocated()-allocated < minGarbage {
				s.tryReturn(s.forget)
				continue
			}
			release()
		case <-s.taskSignal:
			ended = time.After(taskTime)
		case <-ended:
			s.tryReturn(s.forget)
		}
	}
}

func (s *Settler) tryReturn(give func() error) {
	if err := give(); err != nil {
		s.logFailure(err)
	}
}

// setGCPercent sets GOGC, unless the administrator has set it.
func setGCPercent(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// freeMemory returns unused heap memory and the pages of the executable to the system.
func freeMemory(twice bool) error {
	setGCPercent(restingGC)
	if twice {
		runtime.GC() // shrinks pools and deep stacks; the next call returns their memory
	}
	debug.FreeOSMemory() // collects the garbage too
	return forgetPages()
}

// allocatedBytes returns the number of bytes of heap memory that this process has ever allocated.
func allocatedBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// forgetPages unmaps the pages of the executable. They stay in the page cache, so the kernel can map them again
// without reading from the disk.
func forgetPages() error { return advisePages(unix.MADV_DONTNEED) }

// advisePages calls madvise for the pages of the executable.
func advisePages(how uintptr) error {
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

// A mapping is a range of addresses to which the executable is mapped.
type mapping struct{ from, to uintptr }

// programMappings returns the read-only mappings of the executable, which do not change while the process runs. It
// omits writable mappings, because their modified pages would be lost.
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
