package eviction

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A Watch receives the kernel's memory events. It uses no CPU between events, because its files wait in the Go
// runtime's poller.
//
//	/proc/pressure/memory: processes have waited for memory for a time     -.
//	cgroup v1: the use of the root, or of all pods, has reached a threshold -+--> Wake
//	cgroup v2: the use of all pods has reached a threshold: see memoryHigh -'
//
// With cgroup v2 the kernel does not report the use of processes outside of pods.
// https://docs.kernel.org/accounting/psi.html
// https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
type Watch struct {
	dirs       [2]string // directories of the v1 memory controller for the root and for all pods; empty with cgroup v2
	wake       chan struct{}
	reportsUse bool        // set if the kernel reports all requested thresholds
	high       *memoryHigh // nil with cgroup v1
	log        *slog.Logger

	files           sync.WaitGroup
	stall           *os.File // nil if the kernel reports no stalls
	poll            *os.File // readable when stall has an event
	usageThresholds [2]usageThreshold
}

// A usageThreshold is a threshold for the use of a cgroup.
type usageThreshold struct {
	file  *os.File
	bytes uint64 // bytes
}

// triggers contains PSI triggers, with stall time and window in microseconds. Without CAP_SYS_RESOURCE the kernel
// only allows a window of 2 s.
var triggers = []string{"some 10000 500000", "some 40000 2000000"}

// OpenWatch returns a Watch for a PSI file and for the memory cgroups of the machine and of all pods. The parameter
// pressure is the path of the PSI file. The parameter mount is the mount point of the unified hierarchy or, if
// unified is false, of the v1 memory controller. The parameter pods is the path of the pods' cgroup below that mount
// point.
func OpenWatch(pressure, mount, pods string, unified bool, log *slog.Logger) *Watch {
	w := &Watch{wake: make(chan struct{}, 1), log: log}
	if unified {
		w.high = &memoryHigh{dir: filepath.Join(mount, pods)}
		if err := w.high.reset(); err != nil {
			log.Warn("cannot remove an old memory.high: pods may be throttled below their limit", "cgroup", w.high.dir, "error", err)
		}
	} else {
		w.dirs = [2]string{mount, filepath.Join(mount, pods)}
	}
	var err error
	for _, t := range triggers {
		if w.stall, err = openTrigger(pressure, t); err == nil {
			break
		}
	}
	if err == nil {
		if w.poll, err = epollFor(w.stall); err != nil {
			w.stall.Close()
			w.stall = nil
		}
	}
	if err != nil {
		log.Info("the kernel reports no memory stalls, so evictions may start later", "error", err)
	} else {
		w.files.Go(func() { w.watchStalls(w.poll) })
	}
	return w
}

// openTrigger registers a PSI trigger.
func openTrigger(file, what string) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(append([]byte(what), 0)); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// epollFor returns a file that becomes readable when f has urgent data. A PSI trigger reports an event as urgent
// data, which Go's poller does not detect.
func epollFor(f *os.File) (*os.File, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	c, err := f.SyscallConn()
	if err == nil {
		var added error
		err = c.Control(func(of uintptr) {
			added = errors.Join(unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, int(of), &unix.EpollEvent{Events: unix.EPOLLPRI | unix.EPOLLET}),
				unix.SetNonblock(fd, true))
		})
		err = errors.Join(err, added)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return os.NewFile(uintptr(fd), "stalls for memory"), nil
}

// watchStalls sends a value whenever a trigger fires, until the trigger's file is closed. The function passed to Read
// is called once at the start, and then each time Go's poller reports that the file is readable.
func (w *Watch) watchStalls(f *os.File) {
	c, err := f.SyscallConn()
	if err != nil {
		return
	}
	first := true
	_ = c.Read(func(fd uintptr) bool { // returns when the file is closed
		var events [1]unix.EpollEvent
		if n, _ := unix.EpollWait(int(fd), events[:], 0); n > 0 || !first {
			w.sendWake()
		}
		first = false
		return false
	})
}

func (w *Watch) sendWake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Wake returns a channel that receives a value when memory may be short.
func (w *Watch) Wake() <-chan struct{} { return w.wake }

// Coverage describes which memory events the kernel reports.
type Coverage int

// The kernel reports stalls late: only when it must reclaim pages that are in use.
const (
	NoEvents Coverage = iota
	StallEvents
	UseEvents
)

// Coverage returns which events this kernel reports.
func (w *Watch) Coverage() Coverage {
	switch {
	case w.reportsUse:
		return UseEvents
	case w.stall != nil:
		return StallEvents
	}
	return NoEvents
}

// Arm requests an event for the time when the memory use of the machine, or of all pods together, has grown by the given
// number of bytes. A number of 0 requests no event. One goroutine must call Arm again after each evaluation.
func (w *Watch) Arm(machine, pods uint64) {
	if w.high != nil {
		if machine > 0 && (pods == 0 || machine < pods) { // pods use up the machine's memory
			pods = machine
		}
		if err := w.high.arm(pods, w.sendWake, &w.files); err != nil {
			w.log.Debug("cannot watch the memory use of a cgroup", "cgroup", w.high.dir, "error", err)
		}
		return
	}
	w.reportsUse = true
	for i, more := range [2]uint64{machine, pods} {
		if err := w.arm(i, more); err != nil {
			w.reportsUse = false
			w.log.Debug("cannot watch the memory use of a cgroup", "cgroup", w.dirs[i], "error", err)
		}
	}
}

func (w *Watch) arm(i int, more uint64) error {
	m, dir := &w.usageThresholds[i], w.dirs[i]
	if more == 0 {
		w.disarm(i)
		return nil
	}
	text, err := os.ReadFile(filepath.Join(dir, "memory.usage_in_bytes"))
	if err != nil {
		w.disarm(i) // the cgroup was removed
		return err
	}
	use, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return err
	}
	at := use + more
	if m.file != nil && max(at, m.bytes)-min(at, m.bytes) < more/8 { // close enough
		return nil
	}
	w.disarm(i)
	f, err := openUsageEvent(dir, at)
	if err != nil {
		return err
	}
	*m = usageThreshold{f, at}
	w.files.Go(func() {
		var n [8]byte
		for {
			if _, err := f.Read(n[:]); err != nil || binary.NativeEndian.Uint64(n[:]) == 0 {
				return
			}
			w.sendWake()
		}
	})
	return nil
}

// openUsageEvent returns a file that becomes readable whenever the use of a cgroup crosses a threshold in either
// direction.
func openUsageEvent(dir string, at uint64) (*os.File, error) {
	use, err := os.Open(filepath.Join(dir, "memory.usage_in_bytes"))
	if err != nil {
		return nil, err
	}
	defer use.Close()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memory threshold")
	line := fmt.Sprintf("%d %d %d", fd, use.Fd(), at)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.event_control"), []byte(line), 0); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (w *Watch) disarm(i int) {
	if w.usageThresholds[i].file != nil {
		w.usageThresholds[i].file.Close()
	}
	w.usageThresholds[i] = usageThreshold{}
}

// Close removes the thresholds and waits for all goroutines to end.
func (w *Watch) Close() {
	if w.stall != nil {
		w.stall.Close()
		w.poll.Close()
	}
	for i := range w.usageThresholds {
		w.disarm(i)
	}
	if w.high != nil {
		if err := w.high.reset(); err != nil {
			w.log.Warn("cannot remove memory.high: pods may be throttled below their limit until the agent restarts",
				"cgroup", w.high.dir, "error", err)
		}
	}
	w.files.Wait()
}
